// How photos are captioned from now on: {beam, include, style, model}.
function createSettings(dialog, { onChange, countOpen }) {
  const find = (selector) => dialog.querySelector(selector);
  let chosen = { beam: "", include: "", style: "caption", model: "" };

  // The choices that the server offers.
  function learn(limits) {
    const add = (select, values) => {
      select.querySelectorAll("option:not([value=''])").forEach((option) => option.remove());
      select.append(...values.map((value) => new Option(value, value)));
    };
    add(find(".beam"), Array.from({ length: limits.max_beam_size ?? 1 }, (_, at) => at + 1));
    find(".beam option").textContent = `As the model does (${limits.defaults?.beam_size ?? "default"})`;
    const models = limits.models ?? [];
    add(find(".model-choice"), models.slice(1));
    find(".model-choice option").textContent = models[0] ?? "default";
    find(".model-field").hidden = models.length < 2;
    find(".beam").value = chosen.beam;
    find(".model-choice").value = chosen.model;
  }

  function open() {
    find(".beam").value = chosen.beam;
    find(".include").value = chosen.include;
    find(`[name=style][value=${chosen.style}]`).checked = true;
    find(".model-choice").value = chosen.model;
    find("[value=again]").hidden = !countOpen();
    dialog.showModal();
  }

  find("form").addEventListener("submit", (event) => {
    chosen = {
      beam: find(".beam").value, include: find(".include").value.replace(/,/g, " ").trim(),
      style: find("[name=style]:checked").value, model: find(".model-choice").value,
    };
    onChange({ again: event.submitter?.value === "again" });
  });
  find(".settings-cancel").addEventListener("click", () => dialog.close("cancel"));

  // The options of a call, for a server with these limits.
  function options(limits) {
    const most = limits.max_beam_size ?? 1, others = Math.min(3, most - 1);
    return {
      attention: true, ...(others > 0 && { alternatives: others }), ...(chosen.beam && { beam_size: chosen.beam }),
      ...(chosen.include && { include: chosen.include }), ...(chosen.model && { model: chosen.model }),
    };
  }

  return { open, learn, options, get style() { return chosen.style; } };
}
