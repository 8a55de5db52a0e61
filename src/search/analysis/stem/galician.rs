//! Galician: rules of the kind of V. Orengo's for Portuguese, as Lucene has them, with the commoner of their
//! exceptions.
//! Rules and words: Apache Lucene 4, Apache License 2.0.

use super::Word;

/// Steps of rules. A rule: ending, letters that must be before it, what is put in its place (`-`: nothing), and
/// behind a colon words that are left alone.
const PLURAL: &str = "ns 1 n : luns furatapóns furatapons; ós 3 ón; ões 3 ón; ães 1 ão : mães magalhães; ais 2 al \
    : cais tais mais pais ademais; áis 2 al : cáis táis máis páis ademáis; éis 2 el; eis 2 el; óis 2 ol : \
    escornabóis; ois 2 ol : escornabois; ís 2 il : país; is 2 il : menfis pais kinguis; les 2 l : ingles \
    marselles montreales senegales manizales móstoles nápoles; res 3 r : petres henares cáceres baleares \
    linares londres mieres miraflores mércores venres pires; ces 2 z; zes 2 z; ises 3 z; ás 1 al : más; ses 2 \
    s; s 2 - : aliás pires lápis cais mais mas menos férias pêsames crúcis país martes xoves reves atenas \
    asturias canarias filipinas honduras caldas psoas óculos nupcias barcelonés escocés francês gabonés \
    cantonés llanés medinés macramés";

const UNIFICATION: &str = "íssimo 5 ísimo; íssima 5 ísima; aço 4 azo; aça 4 aza; uça 4 uza; lhar 2 llar; lher 2 \
    ller; lhor 2 llor; lho 1 llo; nhar 2 ñar; nhor 2 ñor; nho 1 ño; nha 1 ña; ário 3 ario; ária 3 aria; able 2 \
    ábel; ável 2 ábel; ible 2 íbel; ível 2 íbel; çom 2 ción; agem 2 axe; age 2 axe; ão 3 ón; ao 1 án; au 1 án; \
    om 3 ón; m 2 n";

const ADVERB: &str = "mente 4 - : experimente vehemente sedimente";

const AUGMENTATIVE: &str = "dísimo 5; dísima 5; bilísimo 3; bilísima 3; ísimo 3; ísima 3; ésimo 3; ésima 3; érrimo \
    4; érrima 4; ana 2 - : banana iguana membrana mesana palangana persiana pestana porcelana ventana; án 3 - \
    : ademán faisán furacán galán serán titán verán volcán; azo 4 - : abrazo espazo bagazo balazo pedazo \
    regazo; aza 3 - : ameaza cabaza coiraza melaza mordaza rapaza; allo 4 - : traballo; alla 4; arra 3 - : \
    cigarra cinzarra; astro 3 - : balastro canastro; astra 3 - : canastra pilastra; ázio 3 - : topázio; elo 4 \
    - : bacelo camelo caramelo cerebelo coitelo desvelo mantelo modelo outerelo pesadelo portelo ourelo; eta 3 \
    - : atleta banqueta baioneta carreta cometa corveta gabeta galleta gaveta libreta maleta meseta muleta \
    peseta planeta raqueta; ete 3 - : alfinete banquete billete bonete bufete clarinete filete machete \
    mosquete ribete; ica 3 - : andarica botánica botica dialéctica dinámica física formica gráfica marica \
    túnica; ico 3 - : conico acetifico acidifico; exo 3 - : azulexo cacarexo convexo cotexo desexo manexo \
    varexo; exa 3 - : airexa bandexa envexa igrexa presexa; idão 3; iño 3 o : camiño cariño comiño golfiño \
    padriño sobriño viciño veciño; iña 3 a : camariña campiña entreliña espiña fariña moriña valiña; ito 3; \
    ita 3; oide 3 - : asteroide celuloide esteroide hemorroide; ola 3 - : argola arola carambola cebola \
    consola escarola esmola estola góndola gárgola; olo 3 - : desconsolo rebolo repolo subsolo tixolo tómbolo \
    trémolo zócolo; ote 3 - : camarote capote escote garrote lapote lingote rebote; ota 3 - : compota derrota \
    pelota remota picota; cho 3 - : borracho mostacho; cha 3 - : borracha estacha remolacha; uco 4 - : caduco \
    estuco malluco saluco trabuco; uzo 3 - : fachuzo tapuzo; uza 3 - : chapuza conduza deduza induza seduza \
    traduza; uxa 3 - : cartuxa coruxa curuxa maruxa; uxo 3 - : curuxo debuxo influxo refluxo; ello 3 - : \
    concello consello espello fedello trebello; ella 3 - : botella grosella parella nocella";

const NOUN: &str = "dade 3 - : acridade calidade; ificar 2; eiro 3 - : barreiro canteiro carneiro carteiro \
    raposeiro; eira 3 - : cabeleira canteira cocheira folleira milleira; ario 3 - : armario calcario lionario \
    salario; aria 3 - : coronaria; ístico 3 - : balístico ensaístico; ista 3 - : batista ciclista fadista \
    operista tenista verista; ado 2 - : grado agrado; ato 2 - : agnato; ido 3 - : cándido cândido consolido \
    decidido duvido marido rápido; ida 3 - : bastida dúbida dubida duvida ermida éxida guarida lapicida medida \
    morida; ída 3; ido 3; udo 3 - : estudo escudo; uda 3; ada 3 - : abada alhada allada pitada; dela 3 - : \
    candela mortadela picadela; ela 3 - : canela capela estela flanela novela panela parcela pasarela \
    sentinela tela vitela xanela; ábel 2 - : afábel fiábel; íbel 2 - : críbel imposíbel posíbel fisíbel \
    falíbel; nte 3 - : alimente adiante acrescente elefante frequente freqüente gigante instante oriente \
    permanente posante possante restaurante; ncia 3; nza 3; acia 3 - : acracia audacia falacia farmacia; icia \
    3 - : caricia delicia ledicia malicia milicia noticia pericia primicia; iza 3 - : baliza carriza longaniza \
    peliza preguiza; exar 3 - : palmexar; ación 2 - : aeración; ición 3 - : condición monición nutrición \
    petición posición sedición volición; ción 3 t; sión 3 s : abrasión alusión; azón 2 - : armazón; ón 3 - : \
    acordeón alción bombón calzón campón cantón capitón cañón ciclón cupón tirón turón unción versión; ona 3 - \
    : abandona acetona amazona anémona hormona madona maratona neurona persona poltrona; oa 3 - : lagoa persoa \
    canoa améndoa anchoa bisavoa coroa magoa táboa avoa barbacoa; aco 3; aca 3 - : alpaca barraca casaca \
    cloaca espinaca estaca pataca resaca urraca; al 4 - : afinal animal estatal bisexual bissexual desleal \
    fiscal formal pessoal persoal liberal postal virtual visual pontual puntual homosexual heterosexual; dor 2 \
    - : abaixador; tor 3 - : autor motor pastor pintor; or 2 - : asesor assessor favor mellor melhor redor \
    rigor sensor tambor tumor; ora 3 - : áncora aurora demora eslora espora lavadora mellora metáfora píldora \
    pólvora víbora; aría 3 - : libraría; axe 3 - : bagaxe chantaxe coraxe embalaxe forraxe garaxe homenaxe \
    liñaxe masaxe miraxe montaxe pasaxe peaxe vantaxe viraxe; dizo 3; eza 3 - : alteza beleza fereza fineza \
    vasteza vileza; ez 3 - : acidez adultez adustez avidez candidez mudez nenez nudez pomez; engo 3; ego 3 - : \
    corego derrego entrego lamego sarego sartego; oso 3 - : afanoso caldoso caloso ditoso fogoso precioso \
    venoso; osa 3 - : mucosa baldosa celulosa preciosa sacarosa serosa ventosa; ume 3 - : agrume albume batume \
    cacume chorume costume estrume legume perfume queixume; ura 3 - : albura armadura imatura costura; iñar 3; \
    il 3 - : abril anil atril barril brasil cadril candil carril civil cubil dátil difícil dócil edil estéril \
    fácil fráxil funil fusil grácil hábil hostil marfil; esco 4; isco 4; ivo 3 - : pasivo positivo passivo \
    possessivo posesivo pexotarivo relativo";

const VERB: &str = "aba 2; abade 2; ábade 2; abamo 2; ábamo 2; aban 2; ache 2; ade 2; an 2; ando 2; ar 2 - : azar \
    bazar patamar; arade 2; aramo 2; arán 2; aran 2; árade 2; aría 2; ariade 2; aríade 2; arian 2; ariamo 2; \
    aron 2; ase 2; asede 2; ásede 2; asemo 2; ásemo 2; asen 2; avan 2; aríamo 2; assen 2; ássemo 2; eríamo 2; \
    êssemo 2; iríamo 3; íssemo 3; áramo 2; árei 2; aren 2; aremo 2; aríei 2; ássei 2; ávamo 2; êramo 1; eremo \
    1; eríei 1; êssei 1; íramo 3; iremo 3; iríei 3; íssei 3; issen 3; endo 1; indo 3; ondo 3; arde 2; arei 2; \
    aria 2; armo 2; asse 2; aste 2; ávei 2; erão 1; erde 1; erei 1; êrei 1; eren 2; eria 1; ermo 1; este 1 - : \
    faroeste agreste; íamo 1; ian 2 - : enfian eloxian ensaian; irde 2; irei 3 - : admirei; iren 3; iria 3; \
    irmo 3; isse 3; iste 4; iava 1 - : ampliava; amo 2; iona 3; ara 2 - : arara prepara; ará 2 - : alvará \
    bacará; are 2 - : prepare; ava 2 - : agrava; emo 2; era 1 - : acelera espera; erá 1; ere 1 - : espere; íei \
    1; in 3; imo 3 - : reprimo intimo íntimo nimo queimo ximo; ira 3 - : fronteira sátira; ído 3; irá 3; tizar \
    4 - : alfabetizar; izar 3 - : organizar; itar 5 - : acreditar explicitar estreitar; ire 3 - : adquire; omo \
    3; ai 2; ear 4 - : alardear nuclear; uei 3; uía 5 u; ei 3; er 1 - : éter pier; eu 1 - : chapeu; ia 1 - : \
    estória fatia acia praia elogia mania lábia aprecia polícia arredia cheia ásia; ir 3; iu 3; eou 5; ou 3; i \
    1; ede 1 - : rede bípede céspede parede palmípede vostede hóspede adrede; en 2; erade 1; érade 1; eran 2; \
    eramo 1; éramo 1; erán 1; ería 1; eriade 1; eríade 1; eriamo 1; erian 1; erían 1; eron 1; ese 1; esedes 1; \
    ésedes 1; esemo 1; ésemo 1; esen 1; êssede 1; ía 1; iade 1; íade 1; iamo 1; ían 1; iche 1; ide 1; irade 3; \
    írade 3; iramo 3; irán 3; iría 3; iriade 3; iríade 3; iriamo 3; irian 3; irían 3; iron 3; ise 3; isede 3; \
    ísede 3; isemo 3; ísemo 3; isen 3; íssede 3";

const VOWEL: &str = "gue 2 g : azougue dengue merengue nurague rengue; que 2 c : almanaque arenque bloque bosque \
    buque cacique cheque dique duque estoque parque pique raque tanque toque truque xeque roque; a 3 - : \
    amasadela cerva; e 3 - : marte; o 3 - : barro fado cabo libro cervo; â 3; ã 3 - : amanhã arapuã fã divã \
    manhã; ê 3; ô 3; á 3; é 3; ó 3; i 3";

/// A rule, read.
struct Rule {
    ending: &'static str,
    least: usize,
    by: &'static str,
    exceptions: Vec<&'static str>,
}

/// A step: the first of its rules that fits.
struct Step {
    rules: Vec<Rule>,
    /// Exceptions are endings too, not whole words only.
    are_endings: bool,
}

impl Step {
    fn read(rules: &'static str, are_endings: bool) -> Step {
        let rules = rules.split(';').filter_map(|rule| {
            let (head, exceptions) = rule.split_once(':').unwrap_or((rule, ""));
            let mut parts = head.split_whitespace();
            let (ending, least) = (parts.next()?, parts.next()?.parse().ok()?);
            let by = parts.next().filter(|by| *by != "-").unwrap_or("");
            Some(Rule { ending, least, by, exceptions: exceptions.split_whitespace().collect() })
        });
        Step { rules: rules.collect(), are_endings }
    }

    fn apply(&self, word: &mut Word) {
        let fits = |rule: &&Rule| {
            let is_exception = |exception: &&str| {
                word.ends(exception) && (self.are_endings || exception.chars().count() == word.len())
            };
            word.len() >= rule.least + rule.ending.chars().count()
                && word.ends(rule.ending)
                && !rule.exceptions.iter().any(is_exception)
        };
        if let Some(rule) = self.rules.iter().find(fits) {
            word.replace(rule.ending, rule.by);
        }
    }
}

/// All steps.
struct Steps {
    plural: Step,
    unification: Step,
    adverb: Step,
    augmentative: Step,
    noun: Step,
    verb: Step,
    vowel: Step,
}

static STEPS: std::sync::LazyLock<Steps> = std::sync::LazyLock::new(|| Steps {
    plural: Step::read(PLURAL, false),
    unification: Step::read(UNIFICATION, true),
    adverb: Step::read(ADVERB, true),
    augmentative: Step::read(AUGMENTATIVE, false),
    noun: Step::read(NOUN, true),
    verb: Step::read(VERB, true),
    vowel: Step::read(VOWEL, true),
});

/// Stems a word.
pub fn stem(word: &mut Word) {
    let steps = &*STEPS;
    if word.len() >= 3 && word.ends("s") {
        steps.plural.apply(word);
    }
    steps.unification.apply(word);
    steps.adverb.apply(word);
    loop {
        let length = word.len();
        steps.augmentative.apply(word);
        if word.len() == length {
            break;
        }
    }
    let length = word.len();
    steps.noun.apply(word);
    if word.len() == length {
        steps.verb.apply(word);
    }
    steps.vowel.apply(word);
    for c in word.iter_mut() {
        *c = match *c {
            'á' => 'a',
            'é' | 'ê' => 'e',
            'í' => 'i',
            'ó' => 'o',
            'ú' => 'u',
            other => other,
        };
    }
}
