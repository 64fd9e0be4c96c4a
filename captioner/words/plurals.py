"""English nouns in the singular and the plural.

Rules, and tables of what they get wrong. The library `inflect` is no better here and takes a large part of a
second to import: it has "bu" for the singular of "bus" and "jeanss" for the plural of "jeans".
"""

from __future__ import annotations

import re

_TABLE = """
    man:men woman:women child:children person:people,persons foot:feet tooth:teeth goose:geese mouse:mice
    louse:lice ox:oxen die:dice penny:pennies,pence passerby:passersby fish:fish,fishes
    calf:calves elf:elves half:halves hoof:hooves,hoofs knife:knives leaf:leaves life:lives loaf:loaves
    scarf:scarves,scarfs self:selves sheaf:sheaves shelf:shelves thief:thieves wharf:wharves,wharfs
    wife:wives wolf:wolves dwarf:dwarves,dwarfs
    gas:gases lens:lenses canvas:canvases atlas:atlases christmas:christmases pancreas:pancreases
    iris:irises ibis:ibises mantis:mantises trellis:trellises rhinoceros:rhinoceroses
    axis:axes oasis:oases basis:bases crisis:crises quiz:quizzes fez:fezzes topaz:topazes
    cactus:cacti,cactuses octopus:octopuses,octopi hippopotamus:hippopotamuses,hippopotami
    fungus:fungi,funguses alga:algae larva:larvae antenna:antennas,antennae plateau:plateaus,plateaux
    potato:potatoes tomato:tomatoes hero:heroes echo:echoes torpedo:torpedoes zero:zeros,zeroes
    mango:mangoes,mangos tornado:tornadoes,tornados volcano:volcanoes,volcanos cargo:cargoes,cargos
    domino:dominoes,dominos mosquito:mosquitoes,mosquitos buffalo:buffaloes,buffalos,buffalo
    flamingo:flamingos,flamingoes
    stomach:stomachs monarch:monarchs loch:lochs tech:techs patriarch:patriarchs
    shrimp:shrimp,shrimps squid:squid,squids
"""
_IRREGULAR = {
    singular: tuple(several.split(","))
    for singular, _, several in (entry.partition(":") for entry in _TABLE.split())
}
"""Singulars, and the plurals in use, the usual one first."""
_INVARIANT = frozenset(
    """sheep deer reindeer moose elk bison salmon trout cod tuna swine offspring aircraft spacecraft
    hovercraft watercraft series species gallows headquarters crossroads chassis corps""".split()  # noqa: SIM905
)
"""Nouns whose plural is their singular."""
_LAST_PARTS = tuple("man child tooth mouse knife wife shelf loaf wolf leaf fish".split())  # noqa: SIM905
"""Nouns that are the last part of others, which have their plural: "snowman", "bookshelf"."""
_NO_PARTS = frozenset(
    """human german roman shaman ottoman norman caiman cayman talisman
    specimen abdomen ramen omen women stamen regimen cyclamen semen""".split()  # noqa: SIM905
)
"""Words that only look as if they had one of these."""
_NO_SINGULAR = frozenset("cattle police folk poultry livestock clothes".split())  # noqa: SIM905
"""Plurals of nothing."""
_SINGULAR = frozenset(
    """news xmas texas kansas vegas dallas bias alias thermos chaos cosmos asbestos los adidas mercedes james
    charles thomas mcdonalds diabetes rabies triceratops biceps triceps athletics gymnastics acrobatics
    aerobics mathematics
    physics politics electronics pyrotechnics billiards molasses starbucks as was has does goes yes always
    perhaps across towards besides sideways afterwards backwards forwards upwards downwards indoors outdoors
    upstairs downstairs overseas ours theirs hers yours its""".split()  # noqa: SIM905
)
"""Words with an s at their end that are no plurals, beside those in -ss, -us and -is."""
_I_AND_U = frozenset(
    """ski waterski jet-ski taxi kiwi bikini tankini panini martini zucchini safari sari alibi ravioli
    broccoli mini yeti salami chili chilli corgi okapi capri tiki rabbi samurai tsunami ferrari
    menu emu gnu guru tutu zebu haiku caribou bayou""".split()  # noqa: SIM905
)
"""Nouns in -i and -u; any other word in -is or -us is taken for a singular."""
_E_KEPT = frozenset(
    """axe ache headache cache niche avalanche quiche brioche moustache mustache porsche douche
    movie cookie bowtie zombie birdie prairie goalie boogie calorie brownie hoodie selfie smoothie genie
    collie budgie magpie potpie rookie talkie walkie-talkie veggie doggie kiddie auntie hippie pixie beanie
    freebie foodie goodie cutie sweetie junkie wheelie oldie nightie onesie groupie barbie sharpie
    use fuse muse ruse excuse""".split()  # noqa: SIM905
)
"""Nouns whose plural ends as if it had no e, or a y: "caches", "movies"."""

_ENDS = re.compile(r"(?:ss|sh|ch|x|zz|tz|[^aeo]us)es$")
"""Ends of plurals whose singulars lack the e, except for those of `_E_KEPT`."""
_PLURAL = re.compile(r".*[^\W_ius]s")

_SINGULARS: dict[str, tuple[str, ...]] = {}
for _singular, _forms in _IRREGULAR.items():
    for _form in _forms:
        _SINGULARS[_form] = (*_SINGULARS.get(_form, ()), _singular)
_SINGULARS |= {"axes": ("axe", "axis"), "bases": ("base", "basis"), "leaves": ("leaf", "leave")}
_PARTS = {part for singular in _LAST_PARTS for part in (singular, *_IRREGULAR[singular])}
_COMPOUND = re.compile(rf"(..+?)({'|'.join(sorted(_PARTS))})")


def plurals(noun: str) -> tuple[str, ...]:
    """The plurals in use of a lower-case noun, the usual one first; a plural is its own."""
    if noun in _IRREGULAR:
        return _IRREGULAR[noun]
    if noun in _INVARIANT:
        return (noun,)
    if (parts := _compound(noun)) is not None:
        return tuple(parts[0] + form for form in plurals(parts[1]))
    if is_plural(noun) or noun in _SINGULAR:
        return (noun,)
    if noun.endswith(("s", "x", "z", "sh", "ch")):
        return (f"{noun}es",)
    if noun.endswith("y") and noun[-2:-1] not in "aeiou":
        return (f"{noun[:-1]}ies",)
    return (f"{noun}s",)


def singulars(noun: str) -> tuple[str, ...]:
    """What a lower-case plural may be the plural of, usually one noun; nothing if it is no plural."""
    if noun in _SINGULARS:
        return _SINGULARS[noun]
    if (parts := _compound(noun)) is not None:
        return tuple(parts[0] + form for form in singulars(parts[1]))
    if noun in _NO_SINGULAR or not is_plural(noun):
        return ()
    if noun[:-1] in _E_KEPT:
        return (noun[:-1],)
    if noun.endswith("ies") and len(noun) > len("ties"):
        return (f"{noun[:-3]}y",)
    return (noun[:-2] if _ENDS.search(noun) else noun[:-1],)


def is_plural(noun: str) -> bool:
    """Whether a lower-case noun can only be a plural: jeans, skis and people, but not fish, glass or news."""
    if noun in _SINGULARS:
        return noun not in _IRREGULAR
    if (parts := _compound(noun)) is not None:
        return is_plural(parts[1])
    if noun in _NO_SINGULAR:
        return True
    if noun in _SINGULAR or noun in _INVARIANT or noun in _IRREGULAR:
        return False
    return bool(_PLURAL.fullmatch(noun)) or (noun[-1:] == "s" and noun[:-1] in _I_AND_U)


def _compound(noun: str) -> tuple[str, str] | None:
    """The parts of "snowmen": "snow" and "men"."""
    found = _COMPOUND.fullmatch(noun)
    return (found[1], found[2]) if found and noun not in _NO_PARTS else None
