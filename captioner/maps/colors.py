"""Colour maps, and how overlays are coloured by default."""

from __future__ import annotations

# 33 stops of each table of 256, spread evenly; linear interpolation is within 2 of 255 of the original
# (6 for cividis). viridis, magma and inferno: N. Smith, S. van der Walt and E. Firing, dedicated to the
# public domain (CC0). cividis: Nunez, Anderton and Renslow 2018, doi:10.1371/journal.pone.0199239 (CC0).
STOPS = {
    "viridis": (
        "440154470d6048186a482374472d7b4537814240863e49893b528b375b8d33638d2f6b8e2c728e297a8e26828e23898e21908c"
        "1f978b1f9f8821a68527ad8131b57b3ebc744dc26c5cc8636ece5882d34d95d840aadc32c0df25d5e21aeae51afde725"
    ),
    "magma": (
        "0000040303120a0822130d341d114729115a36106b440f7650127c5d177f691c817621818226818f2a819c2e7fa9337db6367a"
        "c33b75cf4070db476ae65164ee5c5ef46a5cf9785dfb8861fd9668fea571feb47bfec287fed194fde0a1fceeb0fcfdbf"
    ),
    "inferno": (
        "0000040403120b0724150b37210c4a2f0a5b3d09654a0c6b56106e63156e70196e7d1e6d89226a962766a32c61af315bbb3654"
        "c63d4dd14545da4f3ce35932eb6529f1721ef67f14f98c0afb9b06fcaa0ffbba1ff9c932f5d949f2e865f3f586fcffa4"
    ),
    "cividis": (
        "00224e00285b002e6a0533711a386f273e6e32436d3b496c434e6c4b546c535a6d5a5f6e61656f686a716f70737676767c7c78"
        "8381798b8778928d789a9376a29975aaa073b3a670bbad6dc3b369ccba64d4c15fddc858e6d051efd748f8df3cfee838"
    ),
}
COLORMAPS = tuple(STOPS)
DEFAULT_COLORMAP = "inferno"
DEFAULT_ALPHA = 0.8
"""Opacity of colours over a photo at the peak of a map, 0 to 1."""
