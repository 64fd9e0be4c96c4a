# Sourced by tests/run, examples/run and .ci/run.

export PIP_DISABLE_PIP_VERSION_CHECK=1

# install FOLDER EXTRAS: an environment with this project and some of its extras, made in FOLDER if there is
# none. Quick when it has been done before for the same EXTRAS and pyproject.toml.
install() {
    local folder=$1 extras=$2 python stamp wanted
    stamp=$folder/.captioner-$extras
    wanted=$(pwd; cksum < pyproject.toml)
    if [ "$(cat "$stamp" 2>/dev/null)" = "$wanted" ]; then
        return
    fi
    if ! "$folder/bin/python" -m pip --version > /dev/null 2>&1; then
        python=$(find_python)
        echo "making the environment $folder with $("$python" --version)" >&2
        "$python" -m venv "$folder"
    fi
    echo "installing captioner[$extras] into $folder" >&2
    "$folder/bin/python" -m pip install --quiet --editable ".[$extras]"
    echo "$wanted" > "$stamp"
}

# The first Python that is new enough.
find_python() {
    local candidate
    for candidate in "${PYTHON:-python3}" python3 python3.14 python3.13 python3.12 python3.11; do
        if "$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2> /dev/null; then
            echo "$candidate"
            return
        fi
    done
    echo "captioner needs Python 3.11 or newer; name one with PYTHON=" >&2
    return 2
}
