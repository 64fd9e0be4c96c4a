"""Words for the 80 object categories of COCO (Lin et al. 2014, arXiv:1405.0312) in captions."""

from __future__ import annotations

from collections.abc import Iterator

from captioner.words.plurals import plurals

_SYNONYMS = """
person: man, woman, boy, girl, child, kid, baby, toddler, infant, lady, guy, gentleman, male, female,
    teenager, teen, youth, youngster, human, people, crowd, couple, family, player, surfer, skier,
    snowboarder, skateboarder, skater, rider, biker, cyclist, bicyclist, motorcyclist, driver, passenger,
    pedestrian, batter, pitcher, catcher, umpire, hitter, swimmer, runner, jogger, dancer, athlete, chef,
    cook, waiter, waitress, officer, policeman, police officer, fireman, firefighter, soldier, worker,
    student, teacher, businessman, farmer, fisherman, boater, sailor, hiker, climber, tourist, spectator,
    bride, groom, mother, father, mom, dad, son, daughter, brother, sister, friend, bystander, cowboy,
    clown, goalie, referee, doctor, nurse, musician, singer, guitarist, customer, shopper, vendor, someone,
    somebody, baseball player, tennis player, soccer player, football player, basketball player, bike rider,
    bicycle rider, horse rider, motorcycle rider, bull rider, dog walker, train conductor, bus driver, truck
    driver, skate boarder, snow boarder
bicycle: bike, mountain bike, tricycle, bmx bike
car: automobile, sedan, suv, minivan, van, taxi, cab, jeep, hatchback, limo, limousine, race car, police
    car, sports car, station wagon
motorcycle: motorbike, motor bike, motor cycle, dirt bike, dirtbike, scooter, motor scooter, moped, vespa
airplane: plane, aeroplane, jet, aircraft, airliner, jetliner, biplane, jumbo jet, passenger jet, fighter
    jet, jet plane, sea plane, seaplane, jet airplane, air plane
bus: double decker, tour bus, school bus, city bus, minibus, trolley bus
train: locomotive, passenger train, steam engine, train car, train engine, subway train, freight train,
    caboose
truck: pickup, pickup truck, pick up truck, semi truck, fire truck, firetruck, fire engine, tow truck, dump
    truck, garbage truck, food truck, lorry, delivery truck
boat: ship, canoe, kayak, sailboat, sail boat, rowboat, row boat, motorboat, motor boat, speedboat, ferry,
    yacht, tugboat, tug boat, raft, gondola, barge, fishing boat, cruise ship, dinghy, catamaran
traffic light: stoplight, stop light, traffic signal
fire hydrant: hydrant, fireplug, fire plug
stop sign
parking meter
bench: park bench
bird: duck, goose, geese, seagull, sea gull, gull, pigeon, parrot, owl, eagle, hawk, swan, ostrich, crow,
    raven, sparrow, robin, flamingo, pelican, heron, parakeet, cockatoo, penguin, hummingbird, finch,
    cardinal, woodpecker, rooster, hen, egret, stork, duckling, peacock, vulture, falcon, toucan, macaw,
    dove, ibis, cormorant
cat: kitten, kitty, feline, tabby, kitty cat, tomcat, calico cat
dog: puppy, canine, pup, doggy, doggie, hound, greyhound, poodle, terrier, bulldog, retriever, labrador,
    beagle, dachshund, collie, sheepdog, sheep dog, german shepherd, rottweiler, dalmatian, husky, pug,
    chihuahua, corgi, pit bull, puppy dog
horse: pony, foal, mare, stallion, colt
sheep: lamb, ewe, ram
cow: cattle, calf, calves, bull, ox, oxen, heifer, dairy cow
elephant
bear: polar bear, grizzly, brown bear, black bear, bear cub, grizzly bear, panda, panda bear
zebra
giraffe
backpack: knapsack, rucksack, back pack
umbrella: parasol
handbag: purse, hand bag, tote bag, shoulder bag, pocketbook
tie: necktie, neck tie, bow tie, bowtie
suitcase: luggage, suit case, carry on bag, baggage, briefcase
frisbee: flying disc
skis: ski, pair of skis
snowboard: snow board
sports ball: ball, soccer ball, tennis ball, basket ball, volley ball, beach ball, rugby ball, bowling ball,
    golf ball
kite
baseball bat: bat
baseball glove: mitt, baseball mitt
skateboard: skate board, longboard
surfboard: surf board, boogie board, paddle board, paddleboard, wakeboard, wake board
tennis racket: racket, racquet, tennis racquet
bottle: beer bottle, wine bottle, water bottle
wine glass: wineglass, glass of wine, glass of red wine, glass of white wine, champagne glass
cup: mug, coffee cup, teacup, tea cup, coffee mug, cup of coffee, cup of tea
fork
knife: knives, steak knife, butter knife, pocket knife
spoon: ladle, teaspoon, tablespoon
bowl: cereal bowl, salad bowl
banana
apple
sandwich: burger, hamburger, cheeseburger, sub sandwich, panini
orange: tangerine, mandarin, clementine
broccoli
carrot
hot dog: hotdog, chili dog, corn dog
pizza: pepperoni pizza, slice of pizza, pizza pie, cheese pizza
donut: doughnut
cake: cupcake, birthday cake, wedding cake, cheesecake, shortcake, layer cake
chair: armchair, arm chair, recliner, rocking chair, stool, lawn chair, office chair, beach chair,
    wheelchair, high chair, desk chair, barstool, bar stool, folding chair
couch: sofa, loveseat, love seat, futon, settee
potted plant: houseplant, house plant, flower pot, flowerpot, pot plant
bed: bunk bed, crib, cot
dining table: table, dinner table, kitchen table, dining room table, picnic table, coffee table, end table,
    desk
toilet: urinal, toilet bowl
tv: television, television set, tv set, flat screen, flatscreen, flat screen tv, flat screen television
laptop: laptop computer, notebook computer, macbook, lap top
mouse: computer mouse, mice
remote: remote control, wii remote, controller, wii controller, game controller, wiimote, video game
    controller
keyboard: computer keyboard
cell phone: phone, cellphone, mobile phone, smartphone, smart phone, cellular phone, iphone, telephone
microwave: microwave oven
oven: stove, stovetop, stove top
toaster: toaster oven
sink: basin, bathroom sink, kitchen sink, wash basin, washbasin
refrigerator: fridge
book: textbook, paperback
clock: clock tower, alarm clock, wall clock
vase
scissors: pair of scissors, shears
teddy bear: teddy, stuffed bear, teddybear, plush bear, toy bear, stuffed teddy bear
hair drier: hair dryer, blow dryer, hairdryer, hairdrier, blow drier
toothbrush: tooth brush
"""

_NO_OBJECTS = """
    train station, train track, train tracks, train platform, bus stop, bus station, bus shelter, bus
    terminal, car park, car seat, car window, car mirror, car door, truck bed, truck stop, airplane
    hangar, airplane wing, airplane window, plane window, dog house, dog bed, dog food, dog bowl, dog
    park, dog collar, dog leash, dog toy, cat food, cat toy, bird house, bird cage, bird feeder, horse
    race, horse racing, horse track, horse show, toilet paper, toilet tissue, chair lift, ski lift, ski
    lodge, ski slope, ski slopes, ski resort, ski pole, ski poles, ski jump, ski hill, ski suit, ski
    jacket, ski gear, ski goggles, ski boots, ski run, ski trail, ski track, ski tracks, bed room, flower
    bed, bed spread, bed sheets, book shelf, book shelves, book case, book store, book bag, tv stand, tv
    show, table cloth, table top, tennis table, table tennis, cake stand, cake pan, cake plate, pizza box,
    pizza shop, pizza parlor, pizza oven, orange juice, orange slice, apple juice, apple pie, apple tree,
    orange tree, banana tree, banana bread, cup holder, phone booth, telephone booth, telephone pole,
    phone box, telephone wire, boat house, boat dock, boat ramp, kite festival, kite flying, tie dye,
    skate park, traffic cone, ball game, ball park, ball field, couple of, crowd of, group of, cook top,
    mouse pad, piano keyboard, pitcher of, pitchers mound, passenger seat, passenger side, chef hat, baby
    stroller, baby food
"""

_ANIMALS = ("bird", "cat", "dog", "horse", "sheep", "cow", "elephant", "bear", "zebra", "giraffe")
_OF_ANIMALS = ("baby", "adult", "male", "female")


def entries_of(text: str) -> dict[str, list[str]]:
    """The names in each line `kind: name, name`. A line that begins with spaces goes on with the last."""
    entries = {}
    for line in text.replace("\n    ", " ").strip().splitlines():
        category, _, synonyms = line.partition(":")
        entries[category] = [" ".join(phrase.split()) for phrase in synonyms.split(",") if phrase.strip()]
    return entries


def in_both_numbers(words: list[str]) -> Iterator[tuple[str, ...]]:
    """A name as it is, and its plurals: wine glasses, glasses of wine."""
    head = words.index("of") - 1 if "of" in words else len(words) - 1
    for form in (words[head], *plurals(words[head])):
        yield (*words[:head], form, *words[head + 1 :])


def _phrases() -> dict[tuple[str, ...], str | None]:
    phrases: dict[tuple[str, ...], str | None] = {}
    for category, synonyms in CATEGORIES.items():
        for phrase in (category, *synonyms):
            for words in in_both_numbers(phrase.split()):
                phrases[words] = category
                if category in _ANIMALS:
                    phrases.update({(kind, *words): category for kind in _OF_ANIMALS})
    phrases.update({tuple(phrase.split()): None for phrase in " ".join(_NO_OBJECTS.split()).split(", ")})
    return phrases


def _compounds() -> frozenset[tuple[str, ...]]:
    found = {words for words, category in PHRASES.items() if PHRASES.get(words[-1:], category) != category}
    return frozenset(words for words in found if words[1:] not in found)


CATEGORIES = entries_of(_SYNONYMS)
"""The other words for each of the 80 categories."""
PHRASES = _phrases()
"""Words in a row, lower case, and the category that they name; None where they only sound like one."""
COMPOUNDS = _compounds()
"""Those of `PHRASES` whose last word alone names something else: a hot dog is no dog."""
