"""Word lists of the synthetic `demo` corpus: a few hundred English-German lexemes.

Every entry maps one English lexeme, within its part of speech, to one German lexeme, so that a
sentence has exactly one translation. English verbs whose past equals their base form (put, cut)
and nouns whose plural equals their singular (sheep) are left out: they would be ambiguous.

Entries are separated by ";" and their fields by blanks. An irregular English form follows "/".

* nouns: English, German, genitive ending (absent for feminine; n, en: weak noun), German plural
  ("-" for mass nouns)
* verbs: English, German infinitive, German third person singular, German participle.
  English "turn+on" has a movable particle ("turns it on"), "look@for" a fixed one ("looks for
  it"). German "ein|schalten" separates, a participle marked "*" takes "sein" in the perfect.
* adjectives: English, German, and the German stem before endings where it differs
"""

from __future__ import annotations

NOUNS = {
    ("person", "m"): """
        teacher Lehrer s Lehrer; doctor Arzt es Ärzte; farmer Bauer n Bauern; chef Koch s Köche;
        painter Maler s Maler; baker Bäcker s Bäcker; student Student en Studenten;
        neighbor Nachbar n Nachbarn; colleague Kollege n Kollegen;
        policeman/policemen Polizist en Polizisten; king König s Könige; driver Fahrer s Fahrer;
        boy Junge n Jungen; man/men Mann es Männer; father Vater s Väter; brother Bruder s Brüder;
        son Sohn es Söhne; uncle Onkel s Onkel; grandfather Großvater s Großväter;
        friend Freund es Freunde; guest Gast es Gäste; judge Richter s Richter;
        lawyer Anwalt s Anwälte; thief/thieves Dieb es Diebe; prince Prinz en Prinzen;
        gardener Gärtner s Gärtner; hunter Jäger s Jäger; pilot Pilot en Piloten;
        waiter Kellner s Kellner; singer Sänger s Sänger; writer Schriftsteller s Schriftsteller;
        tourist Tourist en Touristen""",
    ("person", "f"): """
        woman/women Frau Frauen; mother Mutter Mütter; sister Schwester Schwestern;
        daughter Tochter Töchter; aunt Tante Tanten; grandmother Großmutter Großmütter;
        queen Königin Königinnen; actress Schauspielerin Schauspielerinnen;
        waitress Kellnerin Kellnerinnen; princess Prinzessin Prinzessinnen;
        nurse Krankenschwester Krankenschwestern; lady Dame Damen; witch Hexe Hexen;
        bride Braut Bräute; niece Nichte Nichten; widow Witwe Witwen""",
    ("person", "n"): """
        child/children Kind es Kinder; girl Mädchen s Mädchen; baby Baby s Babys""",
    ("animal", "m"): """
        dog Hund es Hunde; bird Vogel s Vögel; lion Löwe n Löwen; bear Bär en Bären;
        monkey Affe n Affen; wolf/wolves Wolf es Wölfe; fox Fuchs es Füchse;
        elephant Elefant en Elefanten; donkey Esel s Esel; frog Frosch es Frösche""",
    ("animal", "f"): """
        cat Katze Katzen; cow Kuh Kühe; mouse/mice Maus Mäuse; goose/geese Gans Gänse;
        duck Ente Enten; goat Ziege Ziegen; snake Schlange Schlangen; bee Biene Bienen""",
    ("animal", "n"): """
        horse Pferd es Pferde; pig Schwein s Schweine; rabbit Kaninchen s Kaninchen;
        chicken Huhn s Hühner; crocodile Krokodil s Krokodile; camel Kamel s Kamele;
        lamb Lamm es Lämmer""",
    ("object", "m"): """
        key Schlüssel s Schlüssel; chair Stuhl s Stühle; table Tisch es Tische;
        plate Teller s Teller; spoon Löffel s Löffel; ring Ring s Ringe;
        umbrella Regenschirm s Regenschirme; basket Korb s Körbe; ball Ball s Bälle;
        mirror Spiegel s Spiegel; carpet Teppich s Teppiche; hammer Hammer s Hämmer;
        pencil Bleistift s Bleistifte""",
    ("object", "f"): """
        cup Tasse Tassen; fork Gabel Gabeln; clock Uhr Uhren; flower Blume Blumen;
        candle Kerze Kerzen; guitar Gitarre Gitarren; violin Geige Geigen; doll Puppe Puppen;
        blanket Decke Decken; ladder Leiter Leitern; crown Krone Kronen;
        map Landkarte Landkarten""",
    ("object", "n"): """
        glass Glas es Gläser; knife/knives Messer s Messer; picture Bild es Bilder;
        car Auto s Autos; bicycle Fahrrad s Fahrräder; boat Boot es Boote; piano Klavier s Klaviere;
        pillow Kissen s Kissen; bed Bett s Betten; shelf/shelves Regal s Regale;
        gift Geschenk s Geschenke; rope Seil s Seile; wheel Rad es Räder;
        sword Schwert es Schwerter""",
    ("device", "m"): "computer Computer s Computer; oven Ofen s Öfen",
    ("device", "f"): "lamp Lampe Lampen; camera Kamera Kameras; machine Maschine Maschinen",
    ("device", "n"): "radio Radio s Radios; telephone Telefon s Telefone",
    ("clothes", "m"): """
        coat Mantel s Mäntel; hat Hut es Hüte; shoe Schuh s Schuhe""",
    ("clothes", "f"): "jacket Jacke Jacken; blouse Bluse Blusen",
    ("clothes", "n"): "shirt Hemd es Hemden; dress Kleid es Kleider",
    ("opening", "m"): """
        suitcase Koffer s Koffer; cupboard Schrank es Schränke; backpack Rucksack s Rucksäcke""",
    (
        "opening",
        "f",
    ): "door Tür Türen; bag Tasche Taschen; bottle Flasche Flaschen; box Kiste Kisten",
    ("opening", "n"): "window Fenster s Fenster; gate Tor s Tore",
    ("text", "m"): "letter Brief es Briefe; novel Roman s Romane",
    ("text", "f"): "newspaper Zeitung Zeitungen; story Geschichte Geschichten",
    ("text", "n"): "book Buch es Bücher; diary Tagebuch es Tagebücher; poem Gedicht es Gedichte",
    ("food", "m"): "apple Apfel s Äpfel; cake Kuchen s Kuchen; cookie Keks es Kekse",
    ("food", "f"): """
        soup Suppe Suppen; sausage Wurst Würste; tomato/tomatoes Tomate Tomaten; pear Birne Birnen;
        potato/potatoes Kartoffel Kartoffeln""",
    ("food", "n"): "egg Ei s Eier; roll Brötchen s Brötchen",
    ("dish", "m"): "cheese Käse s -; honey Honig s -; rice Reis es -",
    ("dish", "f"): "butter Butter -; chocolate Schokolade -",
    ("dish", "n"): "bread Brot es -; meat Fleisch es -",
    ("drink", "m"): "coffee Kaffee s -; tea Tee s -; wine Wein s -; juice Saft es -",
    ("drink", "f"): "milk Milch -; lemonade Limonade -",
    ("drink", "n"): "water Wasser s -; beer Bier s -",
    ("place", "m"): """
        garden Garten s Gärten; forest Wald es Wälder; park Park s Parks; cellar Keller s Keller;
        tower Turm es Türme; courtyard Hof es Höfe; shop Laden s Läden""",
    ("place", "f"): """
        kitchen Küche Küchen; school Schule Schulen; church Kirche Kirchen; city Stadt Städte;
        library Bibliothek Bibliotheken; factory Fabrik Fabriken; barn Scheune Scheunen;
        bakery Bäckerei Bäckereien; cave Höhle Höhlen""",
    ("place", "n"): """
        house Haus es Häuser; village Dorf es Dörfer; hotel Hotel s Hotels;
        restaurant Restaurant s Restaurants; castle Schloss es Schlösser; museum Museum s Museen;
        hospital Krankenhaus es Krankenhäuser; office Büro s Büros; room Zimmer s Zimmer;
        tent Zelt es Zelte""",
    ("event", "m"): "storm Sturm es Stürme; war Krieg es Kriege; winter Winter s Winter",
    ("event", "f"): """
        journey Reise Reisen; wedding Hochzeit Hochzeiten; exam Prüfung Prüfungen;
        meeting Sitzung Sitzungen""",
    ("event", "n"): "concert Konzert s Konzerte; party Fest es Feste; game Spiel s Spiele",
}

VERBS = {
    # Takes things and food.
    "goods": """
        buy/bought kaufen kauft gekauft; sell/sold verkaufen verkauft verkauft;
        find/found finden findet gefunden; need brauchen braucht gebraucht;
        forget/forgot vergessen vergisst vergessen; steal/stole stehlen stiehlt gestohlen;
        carry tragen trägt getragen; look@for suchen sucht gesucht;
        pay/paid@for bezahlen bezahlt bezahlt; bring/brought+along mit|bringen bringt mitgebracht;
        bring/brought+back zurück|bringen bringt zurückgebracht;
        throw/threw+away weg|werfen wirft weggeworfen; unpack aus|packen packt ausgepackt""",
    "thing": """
        lose/lost verlieren verliert verloren; repair reparieren repariert repariert;
        hide/hid verstecken versteckt versteckt; use benutzen benutzt benutzt;
        own besitzen besitzt besessen; destroy zerstören zerstört zerstört;
        draw/drew zeichnen zeichnet gezeichnet; examine untersuchen untersucht untersucht;
        collect sammeln sammelt gesammelt; describe beschreiben beschreibt beschrieben;
        polish polieren poliert poliert; look@at an|sehen sieht angesehen;
        admire bewundern bewundert bewundert; take/took+along mit|nehmen nimmt mitgenommen""",
    "device": """
        turn+on ein|schalten schaltet eingeschaltet;
        turn+off aus|schalten schaltet ausgeschaltet""",
    "opening": """
        open öffnen öffnet geöffnet; close schließen schließt geschlossen;
        lock ab|schließen schließt abgeschlossen""",
    "text": """
        write/wrote schreiben schreibt geschrieben; translate übersetzen übersetzt übersetzt;
        copy ab|schreiben schreibt abgeschrieben""",
    "clothes": """
        wash waschen wäscht gewaschen; try+on an|probieren probiert anprobiert;
        take/took+off aus|ziehen zieht ausgezogen""",
    "edible": """
        eat/ate essen isst gegessen; taste probieren probiert probiert;
        order bestellen bestellt bestellt; eat/ate+up auf|essen isst aufgegessen""",
    "drink": "drink/drank trinken trinkt getrunken; heat+up auf|wärmen wärmt aufgewärmt",
    "person": """
        visit besuchen besucht besucht; greet grüßen grüßt gegrüßt;
        meet/met treffen trifft getroffen; kiss küssen küsst geküsst;
        hug/hugged umarmen umarmt umarmt; warn warnen warnt gewarnt; praise loben lobt gelobt;
        punish bestrafen bestraft bestraft; understand/understood verstehen versteht verstanden;
        disturb stören stört gestört; invite ein|laden lädt eingeladen;
        call an|rufen ruft angerufen; pick+up ab|holen holt abgeholt""",
    "creature": """
        see/saw sehen sieht gesehen; hear/heard hören hört gehört; love lieben liebt geliebt;
        watch beobachten beobachtet beobachtet; save retten rettet gerettet;
        protect beschützen beschützt beschützt; recognize erkennen erkennt erkannt;
        miss vermissen vermisst vermisst; photograph fotografieren fotografiert fotografiert""",
    "animal": """
        feed/fed füttern füttert gefüttert; catch/caught fangen fängt gefangen;
        chase jagen jagt gejagt; lock+up ein|sperren sperrt eingesperrt""",
    "dative": """
        help helfen hilft geholfen; thank danken dankt gedankt; follow folgen folgt *gefolgt;
        trust vertrauen vertraut vertraut; congratulate gratulieren gratuliert gratuliert;
        answer antworten antwortet geantwortet; listen@to zu|hören hört zugehört;
        obey gehorchen gehorcht gehorcht; forgive/forgave verzeihen verzeiht verziehen;
        threaten drohen droht gedroht; serve dienen dient gedient;
        contradict widersprechen widerspricht widersprochen;
        agree@with zu|stimmen stimmt zugestimmt; run/ran@after nach|laufen läuft *nachgelaufen;
        encounter begegnen begegnet *begegnet""",
    "belonging": "belong@to gehören gehört gehört",
    "giving": """
        give/gave geben gibt gegeben; show zeigen zeigt gezeigt;
        send/sent schicken schickt geschickt; bring/brought bringen bringt gebracht;
        lend/lent leihen leiht geliehen; recommend empfehlen empfiehlt empfohlen;
        offer an|bieten bietet angeboten; give/gave+back zurück|geben gibt zurückgegeben""",
    # Persons and animals do this; "person action" only persons.
    "action": """
        sleep/slept schlafen schläft geschlafen; wait warten wartet gewartet;
        swim/swam schwimmen schwimmt *geschwommen; play spielen spielt gespielt;
        stay bleiben bleibt *geblieben; disappear verschwinden verschwindet *verschwunden;
        run/ran+away weg|laufen läuft *weggelaufen; wake/woke+up auf|wachen wacht *aufgewacht;
        come/came+back zurück|kommen kommt *zurückgekommen;
        fall/fell+asleep ein|schlafen schläft *eingeschlafen""",
    "person action": """
        work arbeiten arbeitet gearbeitet; sing/sang singen singt gesungen;
        dance tanzen tanzt getanzt; laugh lachen lacht gelacht; cry weinen weint geweint;
        smile lächeln lächelt gelächelt; dream träumen träumt geträumt;
        whisper flüstern flüstert geflüstert; get/got+up auf|stehen steht *aufgestanden;
        arrive an|kommen kommt *angekommen; scream schreien schreit geschrien;
        hesitate zögern zögert gezögert""",
    "dwelling": """
        live wohnen wohnt gewohnt; stay bleiben bleibt *geblieben; wait warten wartet gewartet""",
    "motion": """
        go/went gehen geht *gegangen; run/ran rennen rennt *gerannt; walk laufen läuft *gelaufen;
        drive/drove fahren fährt *gefahren; hurry eilen eilt *geeilt;
        come/came kommen kommt *gekommen; travel reisen reist *gereist""",
    "standing": "stand/stood stehen steht gestanden",
    "placing": """
        lay/laid legen legt gelegt; throw/threw werfen wirft geworfen;
        push schieben schiebt geschoben; pull ziehen zieht gezogen""",
    "that": """
        say/said sagen sagt gesagt; believe glauben glaubt geglaubt; hope hoffen hofft gehofft;
        think/thought denken denkt gedacht; know/knew wissen weiß gewusst;
        notice bemerken bemerkt bemerkt; claim behaupten behauptet behauptet;
        fear fürchten fürchtet gefürchtet""",
    "whether": "ask fragen fragt gefragt; know/knew wissen weiß gewusst",
}

ADJECTIVES = {
    "person": """
        old alt; young jung; rich reich; poor arm; tired müde müd; happy glücklich; sad traurig;
        clever klug; friendly freundlich; famous berühmt; hungry hungrig; brave mutig; lazy faul;
        strong stark; sick krank; proud stolz; angry wütend; honest ehrlich; nervous nervös;
        polite höflich; lonely einsam; thirsty durstig; shy schüchtern; curious neugierig;
        patient geduldig; strict streng""",
    "animal": """
        old alt; young jung; tired müde müd; hungry hungrig; thirsty durstig; lazy faul;
        strong stark; sick krank; curious neugierig; big groß; small klein; fat dick; wild wild;
        tame zahm; dangerous gefährlich; black schwarz; white weiß; brown braun; gray grau;
        dirty schmutzig""",
    "thing": """
        old alt; new neu; big groß; small klein; beautiful schön; expensive teuer teur;
        cheap billig; heavy schwer; broken kaputt; clean sauber; dirty schmutzig; red rot;
        blue blau; green grün; black schwarz; white weiß; yellow gelb; brown braun; strange seltsam;
        valuable wertvoll; useful nützlich; modern modern; golden golden; colorful bunt;
        huge riesig; tiny winzig""",
    "text": """
        old alt; new neu; long lang; short kurz; beautiful schön; sad traurig; strange seltsam;
        important wichtig; boring langweilig; famous berühmt; funny lustig; secret geheim""",
    "edible": """
        fresh frisch; sweet süß; cheap billig; expensive teuer teur; delicious lecker; cold kalt;
        warm warm""",
    "drink": """
        fresh frisch; cheap billig; expensive teuer teur; delicious lecker; cold kalt; warm warm;
        hot heiß; bitter bitter; sour sauer saur""",
    "place": """
        old alt; new neu; big groß; small klein; beautiful schön; dark dunkel dunkl; empty leer;
        quiet ruhig; clean sauber; dirty schmutzig; modern modern; famous berühmt; huge riesig;
        strange seltsam; loud laut""",
    "event": "long lang; short kurz; terrible schrecklich; strange seltsam; important wichtig",
}

THINGS = ("object", "device", "clothes", "opening", "text")
EDIBLES = ("food", "dish")
# Which nouns a verb of each group takes as its object.
OBJECT_KINDS = {
    "goods": (*THINGS, *EDIBLES, "drink"),
    "thing": THINGS,
    "device": ("device",),
    "opening": ("opening",),
    "text": ("text",),
    "clothes": ("clothes",),
    "edible": EDIBLES,
    "drink": ("drink",),
    "person": ("person",),
    "creature": ("person", "animal"),
    "animal": ("animal",),
    "dative": ("person",),
    "giving": THINGS,
}
# Kinds of nouns that share their adjectives.
ADJECTIVES_OF = {
    **dict.fromkeys(("object", "device", "clothes", "opening"), "thing"),
    **dict.fromkeys(EDIBLES, "edible"),
}

NAMES = {
    "f": "Anna Maria Lena Emma Julia Clara Laura Nina".split(),
    "m": "Paul Peter Jan Martin Karl Stefan Simon Oliver".split(),
}
MANNERS = {
    "quickly": "schnell",
    "slowly": "langsam",
    "quietly": "leise",
    "carefully": "vorsichtig",
    "secretly": "heimlich",
    "proudly": "stolz",
    "patiently": "geduldig",
    "happily": "fröhlich",
    "angrily": "wütend",
}
TIMES = {
    "present": {
        "today": "heute",
        "now": "jetzt",
        "every day": "jeden Tag",
        "every morning": "jeden Morgen",
        "every evening": "jeden Abend",
        "in the summer": "im Sommer",
    },
    "past": {
        "yesterday": "gestern",
        "last week": "letzte Woche",
        "last year": "letztes Jahr",
        "last night": "letzte Nacht",
        "two days ago": "vor zwei Tagen",
        "this morning": "heute Morgen",
    },
    "future": {
        "tomorrow": "morgen",
        "next week": "nächste Woche",
        "next year": "nächstes Jahr",
        "tonight": "heute Abend",
        "soon": "bald",
    },
}
FREQUENCIES = {
    "often": "oft",
    "always": "immer",
    "sometimes": "manchmal",
    "never": "nie",
    "rarely": "selten",
}
COMMENTS = {"unfortunately,": "leider", "perhaps": "vielleicht", "fortunately,": "zum Glück"}
