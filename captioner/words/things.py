"""Nouns of captions that name something to be seen, and what each is a kind of.

From the nouns that captions have (COCO and Flickr8k), grouped by WordNet 3.0 and by hand; those of COCO's
categories are in `captioner.words.coco`, those of ImageNet's classes in `captioner.words.imagenet`. Left out
are nouns of places in a picture ("top", "background"), of numbers and shapes ("group", "row"), of parts of
bodies, and of what is not seen ("air", "way").
"""

from __future__ import annotations

from functools import cache

from captioner.words.coco import CATEGORIES, entries_of, in_both_numbers
from captioner.words.imagenet import class_words
from captioner.words.plurals import plurals
from captioner.words.tokens import tokenize

_KINDS = """
animal: seal, deer, crab, octopus, seahorse, raccoon, bird, cat, dog, horse, sheep, cow, elephant, bear,
    zebra, giraffe, border collie, boston terrier, camel, chicken, crane, cricket, dinosaur, doberman,
    dolphin, draft horse, fish, goat, golden retriever, insect, leopard, lion, monkey, pet, shepherd dog,
    siamese cat, snake, squirrel, standard poodle, tabby cat, tiger, turkey, herd, flock
person: backpacker, barber, bridesmaid, cameraman, cheerleader, construction worker, cop, drummer,
    equestrian, fencer, fire fighter, football coach, gymnast, hockey player, horseback rider, jockey,
    motorcycle cop, mountain climber, mountaineer, onlooker, parent, performer, photographer, rock climber,
    rollerblader, scuba diver, security guard, shepherd, ski jumper, speed skater, sumo wrestler,
    surfboarder, teammate, traveler, volleyball player, wrestler, audience, police, team, marching band,
    adult
vehicle: bicycle, atv, go-cart, innertube, car, motorcycle, airplane, bus, train, truck, boat, ambulance,
    buggy, carriage, cart, commuter train, four-wheeler, glider, golf cart, hang glider, helicopter,
    propeller plane, rocket, shopping cart, shuttle bus, sidecar, sled, sleigh, snowmobile, space shuttle,
    steam locomotive, streetcar, stroller, tractor, trailer, tram, trolley, unicycle, wagon, watercraft,
    wheelbarrow, wheelchair, balloon, parachute
clothing: tie, hoodie, wetsuit, shorts, pants, overalls, hardhat, jersey, apron, bandana, bandanna,
    baseball cap, bathing suit, beanie, belt, body suit, bonnet, boot, bowler hat, bra, cap, clothes, coat,
    costume, cowboy hat, diaper, dress, fedora, glove, goggles, gown, hard hat, hat, headband, headdress,
    headscarf, helmet, hood, jacket, jeans, jumpsuit, kilt, kimono, legging, leotard, life jacket,
    life vest, mask, mitten, pajamas, parka, polo shirt, raincoat, robe, sandal, scarf, shirt, shoe,
    ski jacket, skirt, slipper, sneaker, snowsuit, sock, straw hat, suit, sunglasses, glasses, sweater,
    sweatshirt, swimming trunks, swimsuit, t-shirt, tank top, tennis shoe, tights, top hat, trench coat,
    turban, tuxedo, underwear, uniform, vest, wet suit, wig
jewelry: bracelet, earring, necklace
food: banana, apple, sandwich, orange, broccoli, carrot, hot dog, pizza, donut, cake, bacon, bean, bread,
    breakfast, bun, butter, candy, cheese, condiment, cookie, corn, cotton candy, dessert, dinner, egg,
    fast food, french fries, frosting, fruit, ice cream, ketchup, lunch, macaroni, meal, meat, mushroom,
    noodle, onion, pasta, pastry, peach, peanut butter, pickle, pie, potato, potato chip, pumpkin, salad,
    sauce, sausage, snack, soup, strawberry, sushi, tomato, vegetable, veggie, watermelon
drink: alcohol, beer, beverage, coffee, coke, juice, milk, orange juice, soda, tea, wine, cocktail
plant: potted plant, bouquet, bush, christmas tree, dandelion, flower, foliage, grass, greenery, leaf,
    palm tree, pine, pine tree, rose, shrub, tree, tulip, weed
furniture: bench, chair, couch, bed, dining table, bookcase, bookshelf, cabinet, closet, counter,
    countertop, desk, drawer, dresser, highchair, locker, lounge chair, shelf, table, bathtub, cushion,
    pillow, blanket, bedspread, quilt, rug, carpet, curtain, lamp, chandelier, mirror
kitchenware: bottle, wine glass, cup, fork, knife, spoon, bowl, blender, chopstick, cutting board, dish,
    frying pan, glass, jar, jug, pan, plate, platter, pot, silverware, skillet, tray, utensil, napkin
appliance: microwave, oven, toaster, sink, refrigerator, toilet, hair drier, cooler, dishwasher, dryer, fan,
    freezer, kitchen appliance, faucet, shower
electronics: tv, laptop, mouse, remote, keyboard, cell phone, camera, computer, computer monitor,
    desktop computer, digital camera, earphone, electric toothbrush, headphone, microphone, screen, tablet
sports equipment: frisbee, skis, snowboard, sports ball, kite, baseball bat, baseball glove, skateboard,
    surfboard, tennis racket, balance beam, baseball, basketball, basketball hoop, batting cage,
    diving board, football, hurdle, ice skate, oar, paddle, parallel bars, puck, roller skate, rollerblade,
    ski pole, trampoline, volleyball, volleyball net
sport: golf, hockey, rugby, skateboarding, skiing, snowboarding, soccer, surfing, swimming, tennis, race,
    rodeo
bag: backpack, handbag, suitcase, book bag, grocery bag, paper bag, plastic bag, shopping bag
musical instrument: accordion, trumpet, saxophone, bagpipe, drum, electric guitar, flute, grand piano,
    guitar, horn, piano, violin
toy: teddy bear, doll, figurine, hula-hoop, lego, pinata, playhouse, snowman, water gun
weapon: gun, rifle, sword
tool: broom, chainsaw, hammer, ladder, shovel, step ladder
building: airport, bowling alley, cabin, airport terminal, apartment, apartment building, bakery, barn,
    bus station, cafe, cafeteria, castle, cathedral, church, clothing store, coffee shop, factory,
    fire station, garage, gas station, greenhouse, grocery store, gym, hangar, hospital, hotel, house, hut,
    lighthouse, mall, museum, office building, retail store, restaurant, school, shop, shopping center,
    shopping mall, skyscraper, stadium, station, steeple, store, storefront, subway station, tent, theater,
    tower, train station, warehouse
room: art gallery, auditorium, bar, bathroom, bedroom, classroom, corridor, dining room, hall, hallway,
    kitchen, library, living room, lobby, office, parlor, phone booth, restroom, studio, telephone booth
road: alley, alleyway, bridge, crosswalk, driveway, freeway, highway, intersection, overpass, parking lot,
    pathway, pavement, pedestrian crossing, roadway, runway, sidewalk, street, street corner, tunnel,
    walkway
water: canal, creek, lake, ocean, pond, puddle, river, sea, stream, waterfall, waterway
landscape: bay, bank, ditch, mountaintop, peak, ledge, dirt, summit, trail, path, yard, beach, canyon, cave,
    cliff, coast, coastline, countryside, desert, dune, field, forest, hill, hillside, island, jungle,
    marsh, meadow, mountain, mountain range, mountain trail, mountainside, pasture, sand dune, seashore,
    shore, shoreline, ski slope, slope, valley, woodland
sky: cloud, fog, lightning, moon, rain, rainbow, storm, sun, sunset
: traffic light, fire hydrant, stop sign, parking meter, umbrella, clock, vase, scissors, book, toothbrush,
    airfield, american flag, amusement park, animal, antenna, appliance, archway, asphalt, awning, backyard,
    bag, bakery, balcony, bandage, banner, barbed wire, barrel, barricade, baseball diamond, baseball field,
    basket, basketball court, bead, beak, billboard, bin, bird feeder, blindfold, boardwalk, boulder, bow,
    box, bubble, bucket, building, grill, bus stop, button, cage, campfire, candle, canopy, canvas, card,
    carnival, carving, cash register, ceiling, cigarette, circus, city, cloth, clothing, coin, collar, comb,
    concert, confetti, container, court, courtyard, crate, curb, deck, diamond, dock, door, doorway, drink,
    elevator, engine, entrance, equipment, fabric, farm, feather, fence, ferris wheel, festival, fire,
    fireplace, firework, fishing pole, flag, floor, flower garden, food, food court, football field,
    fountain, gallery, garbage, garbage can, garden, garden hose, gas pump, gate, gnome, golf course,
    graffiti, gravel, handlebar, harbor, harness, hay, hay bale, headlight, horseshoe, hose, ice, ice rink,
    instrument, jewelry, jungle gym, laundry, lawn, leash, lens, license plate, lipstick, loading dock, log,
    machine, magazine, magnet, mailbox, makeup, mannequin, marina, market, mascot, mat, merry-go-round,
    meter, money, monument, mud, mural, musical instrument, net, newspaper, obstacle, painting, paper,
    paperback book, parade, park, patio, paw, pedestal, picket fence, picture frame, pier, pillar, pipe,
    plant, platform, playground, plaza, pole, pool, porch, poster, power line, pyramid, racetrack, rack,
    railing, railroad track, ramp, rearview mirror, ribbon, road, robot, rock, roof, room, rope,
    rope bridge, saddle, sand, sculpture, shadow, shower curtain, sign, skeleton, ski lift, ski resort,
    skull, sky, skyline, smoke, snow, snow bank, snowball, snowbank, sparkler, sprinkler, stair, staircase,
    stairway, statue, stone wall, street lamp, streetlight, stump, swimming pool, tarmac, tarp, tattoo,
    telephone pole, telescope, tennis court, tire, tool, toothpaste, towel, town, toy, track, traffic,
    trash, trash can, tripod, vehicle, vending machine, village, wall, wand, watch, water, water fountain,
    watering can, wedding, weapon, wheel, window, windowsill, windshield, wire, wood, zoo
"""


@cache
def more_general() -> dict[str, str]:
    """The next more general name of each thing, "" for the most general: dalmatian, dog, animal."""
    kinds = entries_of(_KINDS)
    known = {kind: "" for kind in kinds if kind} | {name: kind for kind in kinds for name in kinds[kind]}
    for category, synonyms in CATEGORIES.items():
        for name in (one for one in synonyms if " of " not in one):
            # A "ball" is not the more special one of "sports balls".
            same = name.split()[-1] == category.split()[-1]
            known.setdefault(name, known[category] if same else category)
    for names in class_words():
        general = next((name for name in names if name in known), None)
        if general is not None and general != names[0]:
            for place, name in enumerate(own := names[: names.index(general)]):
                # A "great white shark" is a shark before it is a fish.
                heads = [other for other in own[place + 1 :] if name.endswith(f" {other}")]
                known.setdefault(name, heads[-1] if heads else general)
        known.setdefault(names[0], "")
    return known


@cache
def things_by_form() -> dict[tuple[str, ...], str]:
    """The name of each thing by its words, in the singular and the plural."""
    forms: dict[tuple[str, ...], str] = {}
    for category, synonyms in CATEGORIES.items():
        for name in synonyms:
            if " of " in name:  # slices of pizza
                forms.update((form, category) for form in in_both_numbers(name.split()))
    for name in more_general():
        *first, last = tokenize(name)
        for form in (last, *plurals(last)):
            forms.setdefault((*first, form), name)
    return forms
