// What stands between the node and the functions of one design document: compiles them, gives them their globals, and
// turns what they answer or throw into JSON texts. Runs once in a fresh context and leaves one hidden function behind.
(function (host, designText) {
    const { parse, stringify } = JSON;
    const { freeze, keys, values, hasOwn, defineProperty } = Object;
    const { isArray } = Array;
    const { apply } = Reflect;
    const evaluate = globalThis.eval;
    const design = parse(designText);

    // ---- time and chance come from the host ----

    const RealDate = Date;
    const dates = RealDate.prototype;
    // There is one time zone.
    for (const part of ['FullYear', 'Month', 'Date', 'Hours', 'Minutes', 'Seconds', 'Milliseconds']) {
        dates['get' + part] = dates['getUTC' + part];
        dates['set' + part] = dates['setUTC' + part];
    }
    dates.getDay = dates.getUTCDay;
    dates.getTimezoneOffset = () => 0;
    RealDate.now = () => host.now();
    const utc = RealDate.UTC;
    const Clock = new Proxy(RealDate, {
        apply: () => new RealDate(host.now()).toString(),
        construct: (target, given, self) => {
            const args = given.length === 0 ? [host.now()] : given.length === 1 ? given : [utc(...given)];
            return Reflect.construct(target, args, self);
        },
    });
    defineProperty(dates, 'constructor', { value: Clock, writable: true, configurable: true });
    globalThis.Date = Clock;
    Math.random = () => host.random();
    for (const name of ['Promise', 'Proxy', 'WeakRef', 'FinalizationRegistry', 'Atomics', 'SharedArrayBuffer',
        'ArrayBuffer', 'performance', 'queueMicrotask', 'print', 'console', 'navigator', 'DOMException']) {
        delete globalThis[name];
    }

    // ---- JSON as the database understands it ----

    // Errors are told by name and message here, and as the engine does where functions call `JSON.stringify`: a replacer
    // function would do the first, too, but be called for each member of each value.
    let telling = false;
    defineProperty(Error.prototype, 'toJSON', {
        value() { return telling && this instanceof Error ? { error: this.name, message: this.message } : this; },
        writable: true, configurable: true,
    });
    const text = (value) => {
        telling = true;
        try {
            const out = stringify(value);
            return out === undefined ? 'null' : out;
        } finally {
            telling = false;
        }
    };
    // Of an object or array and all that they hold.
    const deepFreeze = (value) => {
        const held = isArray(value) ? value : values(value);
        for (let at = 0; at < held.length; at++) {
            const inner = held[at];
            if (typeof inner === 'object' && inner !== null) deepFreeze(inner);
        }
        return freeze(value);
    };
    // Whether no code that ran here could change what it is given. Then documents need not be frozen to stay as they
    // are, which takes as long as reading them.
    let onlyReaders = true;

    // ---- compiling ----

    const compiled = new Map();
    const evaluated = (source) => {
        onlyReaders = onlyReaders && host.onlyReads(source);
        try {
            return evaluate(source);
        } catch (first) {
            if (!(first instanceof SyntaxError)) throw first;
            try {
                // A bare `function (doc) {..}` is no statement, but it is an expression.
                return evaluate('0,' + source);
            } catch (second) {
                const bare = /^\s*function\s*\(/.test(source);
                throw bare && second instanceof SyntaxError ? second : first;
            }
        }
    };
    const compile = (source) => {
        const known = compiled.get(source);
        if (known !== undefined) return known;
        let made;
        try {
            made = evaluated(source);
        } catch (error) {
            throw { compilation: String(error) + ' (' + source + ')' };
        }
        if (typeof made !== 'function') {
            throw { compilation: 'Expression does not eval to a function. (' + source + ')' };
        }
        compiled.set(source, made);
        return made;
    };

    // ---- CommonJS: modules are texts within the design document ----

    // `folder` is where the module that asks stands; a function stands nowhere, so that no path is relative to it.
    const requirer = (root, modules, folder) => (path) => {
        const parts = String(path).split('/');
        const isRelative = parts[0] === '.' || parts[0] === '..';
        const orphan = () => {
            const from = folder === undefined ? undefined : text({ id: folder.join('/') });
            return ['error', 'invalid_require_path', 'Object has no parent ' + from];
        };
        if (isRelative && folder === undefined) throw orphan();
        const names = isRelative ? [...folder] : [];
        for (const part of parts) {
            if (part === '..') {
                if (names.pop() === undefined) throw orphan();
            } else if (part !== '.' && part !== '') {
                names.push(part);
            }
        }
        const id = names.join('/');
        if (modules.has(id)) return modules.get(id).exports;
        let node = root;
        for (const name of names) {
            if (node === null || typeof node !== 'object' || !hasOwn(node, name)) {
                throw ['error', 'invalid_require_path', 'Object has no property "' + name + '". ' + text({ id })];
            }
            node = node[name];
        }
        if (typeof node !== 'string') {
            throw ['error', 'invalid_require_path', 'Must require a JavaScript string, not: ' + typeof node];
        }
        const module = { id, exports: {} };
        modules.set(id, module);
        onlyReaders = false;
        try {
            const body = evaluate('(function (module, exports, require) {' + node + '\n})');
            apply(body, module.exports, [module, module.exports, requirer(root, modules, names.slice(0, -1))]);
        } catch (error) {
            modules.delete(id);
            if (isExhaustion(error)) throw error;
            throw ['error', 'compilation_error', "Module require('" + path + "') raised error " + String(error)];
        }
        return module.exports;
    };
    const lib = design.views !== null && typeof design.views === 'object' ? design.views.lib : undefined;
    const anywhere = requirer(design, new Map());
    const withinLib = requirer({ views: { lib } }, new Map());

    // ---- the globals of functions ----

    let rows = null;
    globalThis.emit = (key, value) => { if (rows !== null) rows.push([key, value]); };
    // What an index function said of the document; null outside of one.
    let calls = null;
    // The calls `index(type, name, value, options)` of a document that is being indexed with types; null outside of it.
    let typed = null;
    const indexTyped = (type, name, value, options) => {
        const refuse = (what) => { throw new TypeError(what); };
        const expect = (what, kind, given) => {
            if (typeof given !== kind) refuse('type of ' + what + ' must be a ' + kind + ' not ' + typeof given);
        };
        expect('type', 'string', type);
        expect('name', 'string', name);
        if (name[0] === '_') refuse('name must not start with an underscore');
        const { store, facet } = type === 'stored' ? {} : options || {};
        switch (type) {
        case 'double':
            expect('value', 'number', value);
            break;
        case 'string':
        case 'text':
            expect('value', 'string', value);
            break;
        case 'stored':
            if (typeof value !== 'number' && typeof value !== 'string') {
                refuse('type of ' + value + ' must be a string or number');
            }
            break;
        default:
            refuse(type + ' not supported');
        }
        typed.push([type, name, value, { store, facet }]);
    };
    globalThis.index = (...given) => {
        if (typed !== null) return indexTyped(...given);
        const [name, value, options] = given;
        const refuse = (what) => { throw new TypeError(what); };
        if (typeof name !== 'string') refuse('name must be a string not ' + typeof name);
        if (name[0] === '_') refuse('name must not start with an underscore: ' + name);
        const kind = typeof value;
        if (kind !== 'string' && kind !== 'number' && kind !== 'boolean') {
            refuse('value must be a string, a number or boolean not ' + kind);
        }
        if (options && typeof options !== 'object') refuse('options must be an object not ' + typeof options);
        if (calls !== null) calls.push([name, value, options || {}]);
    };
    globalThis.sum = (values) => {
        let total = 0;
        for (const value of values) total += value;
        return total;
    };
    globalThis.log = (message) => host.log(typeof message === 'string' ? message : text(message));
    globalThis.toJSON = (value) => text(value);
    globalThis.isArray = isArray;
    // What a show, list or update function said so far beside its return value; null outside of them.
    let answer = null;
    const within = (name, act) => {
        globalThis[name] = (...given) => {
            if (answer === null) throw new Error(name + ' is for show and list functions');
            return act(...given);
        };
    };
    within('start', (head) => {
        answer.head = head || {};
        // The first row begins an answer, but its head may change until something is sent, which a row or the end does.
        const { begun } = answer;
        if (begun !== null && begun.body === '') begun.head = headed(answer.head, answer.type);
    });
    within('send', (chunk) => { answer.chunks.push(String(chunk)); });
    within('getRow', () => {
        if (answer.rows === null) throw new Error('getRow is for list functions');
        flush();
        answer.ended = answer.next >= answer.rows.length;
        return answer.ended ? null : answer.rows[answer.next++];
    });
    within('registerType', (name, ...types) => { answer.types.set(String(name), types.map(String)); });
    within('provides', (name, make) => { answer.makers.push([String(name), make]); });

    // ---- what functions throw ----

    const thrown = (error) => {
        if (isArray(error) && (error[0] === 'error' || error[0] === 'fatal')) {
            return { thrown: [String(error[1]), error[2] === undefined ? null : error[2]] };
        }
        if (error instanceof Error) return { thrown: [String(error.name), String(error.message)] };
        if (error === null) return { exhausted: true };
        if (typeof error !== 'object') return { thrown: ['unknown_error', String(error)] };
        if (hasOwn(error, 'compilation')) return error;
        const names = keys(error);
        return { thrown: ['unknown_error', names.length === 1 ? error[names[0]] : error] };
    };
    // Memory or stack ran out. The engine throws null where there is no memory for an error.
    const isExhaustion = (error) => error === null || error instanceof InternalError;
    // Nothing that the function did counts.
    const isFatal = (error) => error === 'fatal_error' || isArray(error) && error[0] === 'fatal' || isExhaustion(error);

    // ---- answers of show, list and update functions ----

    const mediaTypes = [
        ['all', '*/*'], ['text', 'text/plain; charset=utf-8', 'txt'], ['html', 'text/html; charset=utf-8'],
        ['xhtml', 'application/xhtml+xml', 'xhtml'], ['xml', 'application/xml', 'text/xml', 'application/x-xml'],
        ['js', 'text/javascript', 'application/javascript', 'application/x-javascript'], ['css', 'text/css'],
        ['ics', 'text/calendar'], ['csv', 'text/csv'], ['rss', 'application/rss+xml'],
        ['atom', 'application/atom+xml'], ['yaml', 'application/x-yaml', 'text/yaml'],
        ['multipart_form', 'multipart/form-data'], ['url_encoded_form', 'application/x-www-form-urlencoded'],
        ['json', 'application/json', 'text/x-json'],
    ];
    const begin = (listed) => {
        const types = new Map(mediaTypes.map(([name, ...of]) => [name, of]));
        answer = { head: {}, chunks: [], rows: listed, next: 0, types, makers: [], type: undefined };
        [answer.begun, answer.ended] = [null, false];
    };
    // What a list function said so far goes out; the first time, the head does, and is settled.
    const flush = () => {
        if (answer.begun === null) answer.begun = { head: headed(answer.head, answer.type), body: '' };
        answer.begun.body += answer.chunks.join('');
        answer.chunks = [];
    };
    const headed = (head, type) => {
        const headers = type === undefined ? head.headers : { 'Content-Type': type, ...head.headers };
        return { ...head, headers: { ...headers } };
    };
    // A media type or range and its parameters.
    const media = (text) => {
        const [name, ...params] = text.split(';').map((part) => part.trim().toLowerCase());
        const [kind, sub] = (name === '*' ? '*/*' : name).split('/');
        return { kind, sub, params };
    };
    // How well a media type fits ranges: how exact the most exact one is that takes it, and that one's quality.
    const fit = (type, ranges) => {
        const own = media(type);
        const takes = (a, b) => a === b || a === '*' || b === '*';
        let best = [-1, 0];
        for (const { kind, sub, params } of ranges) {
            if (!takes(kind, own.kind) || !takes(sub, own.sub)) continue;
            const shared = params.filter((param) => !param.startsWith('q=') && own.params.includes(param));
            const exact = (kind === own.kind ? 100 : 0) + (sub === own.sub ? 10 : 0) + shared.length;
            const quality = params.find((param) => param.startsWith('q='));
            const q = quality === undefined ? 1 : parseFloat(quality.slice(2));
            if (exact > best[0]) best = [exact, q >= 0 && q <= 1 ? q : 1];
        }
        return best;
    };
    // What an Accept header asks for among `{ name, type }`. CouchDB takes the last in the order of the texts that
    // exactness, quality and place make, which shows where several types fit alike.
    const preferred = (offered, accept) => {
        const ranges = accept.split(',').map(media);
        let best = { weight: '', quality: 0 };
        offered.forEach((offer, place) => {
            const [exact, quality] = fit(offer.type, ranges);
            const weight = [exact, quality, place].join();
            if (weight > best.weight) best = { ...offer, weight, quality };
        });
        return best.quality > 0 ? best : {};
    };
    // The provider that the request asks for: `[content type, function]`.
    const chosen = ({ query: { format }, headers: { Accept: accept } }) => {
        // Where types are weighed, CouchDB looks at what was provided last first.
        const makers = accept && !format ? [...answer.makers].reverse() : answer.makers;
        const typesOf = (name) => answer.types.get(name) || [];
        const offered = makers.flatMap(([name]) => typesOf(name).map((type) => ({ name, type })));
        const named = format || !accept && makers[0][0];
        const best = named ? { name: named, type: typesOf(named)[0] } : preferred(offered, accept);
        const found = makers.find(([name]) => name === best.name);
        if (found !== undefined) return [best.type, found[1]];
        throw ['error', 'not_acceptable', 'Content-Type ' + (accept || format) + ' not supported, try one of: '
            + offered.map(({ type }) => type).join(', ')];
    };
    const wrapped = (value) => typeof value === 'string' ? { body: value } : value;
    const response = (value, kind) => {
        const made = wrapped(value);
        if (typeof made !== 'object' || made === null || isArray(made)) {
            throw ['error', 'render_error', 'undefined response from ' + kind + ' function'];
        }
        return made;
    };
    // What was sent goes before the body; only then do the members given to `start` count, as headers.
    const withSent = (made) => {
        if (answer.chunks.length === 0) return made;
        const body = answer.chunks.join('') + (made.body || '');
        answer.chunks = [];
        return { ...made, headers: { ...made.headers, ...answer.head }, body };
    };
    const shown = (returned, req) => {
        let made = withSent(response(returned || {}, 'show'));
        if (answer.makers.length > 0) {
            const [type, make] = chosen(req);
            // Of what a provider answers the body alone counts, as in CouchDB.
            const { body: provided } = wrapped(apply(make, design, []) || {});
            const body = (made.body || '') + answer.chunks.join('') + (provided || '');
            made = { ...made, headers: { 'Content-Type': type, ...made.headers }, body };
        }
        return made;
    };
    const listed = (returned, req) => {
        let tail = returned;
        if (answer.makers.length > 0) {
            const [type, make] = chosen(req);
            answer.type = type;
            tail = apply(make, design, []);
        }
        flush();
        if (tail !== undefined && tail !== null) answer.chunks.push(String(tail));
        flush();
        return soFar();
    };
    const soFar = () => {
        const { head, body } = answer.begun;
        return { ...head, headers: { 'Content-Type': 'application/json', ...head.headers }, body };
    };
    // An error with a row at hand, or behind what was sent, ends the answer that the first row began.
    const brokenOff = (error) => {
        const { begun, ended } = answer;
        if (isFatal(error) || begun === null || ended && begun.body === '') throw error;
        return { resp: soFar(), failed: thrown(error).thrown };
    };
    // An error as such a function's: what is no listed error is a `render_error`, that of a rewrite a `rewrite_error`.
    const told = (error, name = 'render_error') => {
        if (isFatal(error) || isArray(error) && error[0] === 'error') return error;
        if (typeof error === 'object' && error.error && error.reason) return ['error', error.error, error.reason];
        const reason = 'function raised error: ' + String(error) + ' \nstacktrace: ' + error.stack;
        return ['error', name, reason];
    };
    // Runs a function that answers. `rescue` may still make an answer of what it throws.
    const answering = (rows, run, rescue) => {
        begin(rows);
        globalThis.require = anywhere;
        try {
            return run();
        } catch (error) {
            if (rescue !== undefined) return rescue(told(error));
            throw told(error);
        } finally {
            answer = null;
        }
    };

    // Runs a function that refuses by what it throws.
    const refusable = (run) => {
        try {
            return run();
        } catch (error) {
            if (error !== null && typeof error === 'object') {
                if (error.forbidden !== undefined) return text({ forbidden: error.forbidden });
                if (error.unauthorized !== undefined) return text({ unauthorized: error.unauthorized });
            }
            return text(thrown(error));
        }
    };

    // What a function calls `index(name, value, options)` with for a document.
    const indexed = (index, doc) => {
        globalThis.require = withinLib;
        calls = [];
        try {
            apply(index, design, [deepFreeze(parse(doc))]);
            return '{"calls":' + text(calls) + '}';
        } finally {
            calls = null;
        }
    };

    // What a function calls `index(type, name, value, options)` with for a document.
    const indexedWithTypes = (index, doc) => {
        globalThis.require = withinLib;
        typed = [];
        try {
            apply(index, design, [deepFreeze(parse(doc))]);
            return '{"calls":' + text(typed) + '}';
        } finally {
            typed = null;
        }
    };

    // ---- what the node asks for; each answers a JSON text ----

    // What was asked last is often asked next.
    let request = { text: null, value: null };
    let mapping = { text: null, functions: [] };
    const asked = {
        compile: (source) => {
            compile(source);
            return '{}';
        },
        validate: (source, args) => {
            const check = compile(source);
            globalThis.require = anywhere;
            return refusable(() => {
                apply(check, design, parse(args));
                return '{}';
            });
        },
        filter: (source, doc, req) => {
            const passes = compile(source);
            globalThis.require = anywhere;
            if (request.text !== req) request = { text: req, value: parse(req) };
            return apply(passes, design, [parse(doc), request.value]) ? '{"pass":true}' : '{"pass":false}';
        },
        // Whether a map function emits anything for a document. What it throws is thrown.
        emits: (source, doc) => {
            const map = compile(source);
            globalThis.require = withinLib;
            rows = [];
            try {
                apply(map, design, [parse(doc)]);
                return rows.length > 0 ? '{"pass":true}' : '{"pass":false}';
            } finally {
                rows = null;
            }
        },
        // What an index function says of a document; one that throws says nothing.
        index: (source, doc) => {
            const index = compile(source);
            try {
                return indexed(index, doc);
            } catch (error) {
                if (isFatal(error)) throw error;
                return '{"calls":[]}';
            }
        },
        // What an index function says of a document. What it throws is thrown.
        indexed: (source, doc) => indexed(compile(source), doc),
        // What an index function with types says of a document; one that throws says nothing.
        typed: (source, doc) => {
            const index = compile(source);
            try {
                return indexedWithTypes(index, doc);
            } catch (error) {
                if (isFatal(error)) throw error;
                return '{"calls":[]}';
            }
        },
        // What an index function with types says of a document. What it throws is thrown.
        indexedWithTypes: (source, doc) => indexedWithTypes(compile(source), doc),
        // What a reduce function makes of rows `[[key, id], value]`, or again of results. One that throws gives null.
        reduce: (source, input, again) => {
            const reducer = compile(source);
            const given = parse(input);
            const rereduce = again !== '';
            const keys = rereduce ? null : given.map((row) => row[0]);
            const values = rereduce ? given : given.map((row) => row[1]);
            globalThis.require = withinLib;
            try {
                return '{"value":' + text(apply(reducer, design, [keys, values, rereduce])) + '}';
            } catch (error) {
                if (isFatal(error)) throw error;
                return '{"value":null}';
            }
        },
        show: (source, doc, req) => {
            const show = compile(source);
            const [given, asking] = [parse(doc), parse(req)];
            try {
                const run = () => shown(apply(show, design, [given, asking]), asking);
                return '{"resp":' + text(answering(null, run)) + '}';
            } catch (error) {
                // Where the path names a document, that it is missing is what went wrong.
                if (given !== null || asking.path.length <= 5 || isExhaustion(error)) throw error;
                throw ['error', 'not_found', 'document not found'];
            }
        },
        update: (source, doc, req) => {
            const update = compile(source);
            const asking = parse(req);
            return answering(null, () => {
                const made = apply(update, design, [parse(doc), asking]);
                const resp = response(isArray(made) ? made[1] : null, 'update');
                const kept = made[0] === undefined ? null : made[0];
                return '{"doc":' + text(kept) + ',"resp":' + text(resp) + '}';
            });
        },
        // `head` has the rows of the view as its member `rows`, which the function gets one by one.
        list: (source, head, req) => {
            const list = compile(source);
            const asking = parse(req);
            const { rows, ...given } = parse(head);
            const run = () => ({ resp: listed(apply(list, design, [given, asking]), asking) });
            return text(answering(rows, run, brokenOff));
        },
        rewrite: (source, req) => {
            const rewrite = compile(source);
            globalThis.require = anywhere;
            try {
                return '{"resp":' + text(apply(rewrite, design, [parse(req)]) || null) + '}';
            } catch (error) {
                throw told(error, 'rewrite_error');
            }
        },
        // One array of rows for each source.
        map: (sources, doc) => {
            if (mapping.text !== sources) mapping = { text: sources, functions: parse(sources).map(compile) };
            const given = onlyReaders ? parse(doc) : deepFreeze(parse(doc));
            globalThis.require = withinLib;
            const out = [];
            for (const each of mapping.functions) {
                rows = [];
                try {
                    apply(each, design, [given]);
                    out.push(text(rows));
                } catch (error) {
                    if (isFatal(error)) throw error;
                    out.push('[]');
                } finally {
                    rows = null;
                }
            }
            return '{"rows":[' + out.join(',') + ']}';
        },
    };
    const dispatch = (what, a, b, c) => {
        try {
            return asked[what](a, b, c);
        } catch (error) {
            if (error === 'fatal_error') return '{"thrown":["map_runtime_error","function raised \'fatal_error\'"]}';
            return text(thrown(error));
        }
    };
    defineProperty(globalThis, '__settee', { value: dispatch });
})
