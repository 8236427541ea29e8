// Plays pi and its extension, badly, as the message asks. It runs in pi's place: started by the real
// launcher, under the real confinement. `node fake.mjs attack JSON` makes the same attempts unconfined.
import fs from "node:fs";
import net from "node:net";
import dgram from "node:dgram";
import { spawnSync } from "node:child_process";
import { Worker } from "node:worker_threads";
import { createInterface } from "node:readline";

const out = (message) => {
    const text = Buffer.from((typeof message === "string" ? message : JSON.stringify(message)) + "\n");
    for (let sent = 0; sent < text.length; ) sent += fs.writeSync(1, text, sent);
};
const said = (text, more = {}) =>
    out({
        type: "message_end",
        message: {
            role: "assistant",
            content: [{ type: "text", text }],
            usage: { input: 10, output: 2, cacheRead: 0, cacheWrite: 0 },
            stopReason: "stop",
            ...more,
        },
    });
const settled = (aborted = false) => out({ type: "agent_settled", aborted });
const answer = (text) => {
    said(text);
    settled();
};

let socket;
const results = new Map();
let heard = () => {};
const ask = (id, tool, args) => {
    socket.write(JSON.stringify({ type: "call", id, tool, arguments: args }) + "\n");
    return new Promise((resolve) => results.set(id, resolve));
};
const connect = () => {
    socket = new net.Socket({ fd: Number(process.env.SAGE_SOCKET), readable: true, writable: true });
    createInterface({ input: socket }).on("line", (line) => {
        const message = JSON.parse(line);
        if (message.type === "turn" && !deaf) socket.write(line + "\n");
        if (message.type === "result") {
            heard(message);
            results.get(message.id)?.(message);
        }
    });
};

// What the test can see of how far it is.
const mark = (word) => fs.writeFileSync(`${process.env.PI_CODING_AGENT_DIR}/mark`, word);
const marked = (name) => fs.existsSync(`${process.env.PI_CODING_AGENT_DIR}/${name}`);

let deaf = false;
let late = false;
let aborted = () => {};
const prompts = {
    say: (text) => answer(text),
    envelope: (_, whole) => answer(whole),
    pid: () => answer(String(process.pid)),
    environment: () => answer(JSON.stringify([process.argv, process.env])),
    folder: () => answer(process.cwd()),
    malformed: () => {
        out("this is no JSON");
        answer("after a malformed line");
    },
    null: () => {
        out("null");
        answer("after a null");
    },
    "nine-megabytes": () => {
        out({ type: "agent_end", messages: ["x".repeat(9 << 20)] });
        answer("after nine megabytes");
    },
    "nine-megabyte-answer": () => answer("y".repeat(9 << 20)),
    endless: () => {
        out("z".repeat(34 << 20));
        answer("after an endless line");
    },
    odd: () => {
        out({ type: "response", command: "parse", success: false, error: "who knows" });
        out({ id: 7, type: "response", success: true });
        out({ type: "something_new", content: [1] });
        out({ type: "message_end", message: { role: "toolResult", content: "odd" } });
        answer("after odd lines");
    },
    unsettled: () => said("said, and never settled"),
    silent: () => settled(),
    error: () => {
        said("", { stopReason: "error", errorMessage: `401: no such key ${process.env.SAGE_MODEL_KEY}` });
        settled();
    },
    retried: () => {
        said("", { stopReason: "error", errorMessage: "503" });
        out({ type: "agent_end", messages: [], willRetry: true });
        out({ type: "auto_retry_start", attempt: 1, maxAttempts: 3, delayMs: 1, errorMessage: "503" });
        answer("after a retry");
    },
    crash: () => {
        process.stderr.write("Error: it crashed on purpose\n");
        process.exit(3);
    },
    "crash-later": () => {
        answer("before the crash");
        setImmediate(() => process.exit(3));
    },
    // Says what it has to say only after it was stopped, and once more before the next turn begins.
    late: () => {
        late = true;
        said("early");
        aborted = () => answer("late");
    },
    // Stops answering anything.
    deaf: () => {
        deaf = true;
        process.on("SIGTERM", () => {});
    },
    call: async (json) => {
        const [tool, args] = JSON.parse(json);
        const result = await ask("1", tool, args);
        answer(JSON.stringify([result.failed, result.text]));
    },
    "call-twice-by-one-id": async () => {
        let count = 0;
        heard = () => (count += 1);
        ask("same", "list_roots", {});
        await ask("same", "list_roots", {});
        await ask("other", "list_roots", {});
        answer(`${count} results`);
    },
    "call-three-at-once": async () => {
        const calls = ["a", "b", "c"].map((path, n) =>
            ask(String(n), "read_file", { root: "strategy", path }));
        const texts = (await Promise.all(calls)).map((result) => result.text);
        answer(texts.join(" "));
    },
    "call-and-take-back": async () => {
        ask("1", "list_roots", {});
        while (!marked("begun")) await new Promise((resolve) => setTimeout(resolve, 10));
        socket.write(JSON.stringify({ type: "cancel", id: "1" }) + "\n");
        await ask("2", "git_status", { root: "strategy" });
        answer("taken back");
    },
    "call-after-the-end": () => {
        answer("over");
        ask("late", "git_push", { root: "strategy" });
    },
    "call-when-stopped": () => {
        aborted = () => {
            ask("late", "git_push", { root: "strategy" });
            settled(true);
        };
    },
    garbled: () => socket.write("no message\n"),
    attack: async (json) => answer(JSON.stringify(await attack(JSON.parse(json)))),
};

const commands = {
    clear_queue: ({ id }) => {
        out({ id, type: "response", command: "clear_queue", success: true, data: { steering: [], followUp: [] } });
    },
    abort: ({ id }) => {
        aborted();
        aborted = () => {};
        out({ id, type: "response", command: "abort", success: true });
    },
    prompt: ({ id, message }) => {
        const [word, ...rest] = message.split("\n\n").pop().split(" ");
        if (word === "refuse") {
            return out({ id, type: "response", command: "prompt", success: false, error: "Agent is already processing." });
        }
        if (late) {
            answer("late, before the next turn began");
            late = false;
        }
        out({ id, type: "response", command: "prompt", success: true, data: { disposition: "started" } });
        out({ id, type: "response", command: "prompt", success: true, data: { disposition: "started" } });
        out({ type: "agent_start" });
        prompts[word](rest.join(" "), message);
        mark(word);
    },
};

// Each attempt as [name, code]; the code is "done" when nothing refused it.
async function attack(world) {
    const done = [];
    const attempt = async (name, action) => {
        try {
            await action();
            done.push([name, "done"]);
        } catch (error) {
            done.push([name, error.code ?? String(error)]);
        }
    };
    const connected = (options) =>
        new Promise((resolve, reject) => {
            const stream = net.connect(options, () => resolve(stream.destroy()));
            stream.on("error", reject);
        });
    const started = (program, args) => {
        const { error } = spawnSync(program, args);
        if (error) throw error;
    };
    for (const [name, path] of Object.entries(world.read ?? {})) {
        await attempt(`read ${name}`, () => fs.readFileSync(path));
    }
    for (const [name, path] of Object.entries(world.list ?? {})) {
        await attempt(`list ${name}`, () => fs.readdirSync(path));
    }
    for (const [name, path] of Object.entries(world.write ?? {})) {
        await attempt(`write ${name}`, () => fs.closeSync(fs.openSync(path, "a")));
    }
    for (const [name, path] of Object.entries(world.make ?? {})) {
        await attempt(`make ${name}`, () => fs.writeFileSync(`${path}/made`, "x"));
    }
    for (const [name, path] of Object.entries(world.link ?? {})) {
        await attempt(`link ${name}`, () => fs.symlinkSync("/etc/passwd", `${path}/link`));
        await attempt(`pipe ${name}`, () => new Promise((resolve, reject) => {
            const server = net.createServer();
            server.on("error", reject);
            server.listen(`${path}/socket`, () => server.close(resolve));
        }));
    }
    for (const [name, path] of Object.entries(world.exec ?? {})) {
        await attempt(`exec ${name}`, () => started(path, ["-c", "exit 0"]));
    }
    await attempt("exec node", () => started(process.execPath, ["--version"]));
    for (const [name, path] of Object.entries(world.unix ?? {})) {
        await attempt(`unix ${name}`, () => connected({ path }));
    }
    for (const [name, port] of Object.entries(world.tcp ?? {})) {
        await attempt(`tcp ${name}`, () => connected({ host: "127.0.0.1", port }));
    }
    await attempt("tcp listen", () => new Promise((resolve, reject) => {
        const server = net.createServer();
        server.on("error", reject);
        server.listen(0, "127.0.0.1", () => server.close(resolve));
    }));
    await attempt("udp", () => new Promise((resolve, reject) => {
        const udp = dgram.createSocket("udp4");
        udp.on("error", reject);
        udp.bind(0, "127.0.0.1", () => udp.close(resolve));
    }));
    for (const [name, path] of Object.entries(world.mode ?? {})) {
        await attempt(`mode ${name}`, () => fs.chmodSync(path, fs.statSync(path).mode & 0o7777));
    }
    for (const [name, path] of Object.entries(world.time ?? {})) {
        await attempt(`time ${name}`, () => {
            const before = fs.statSync(path).mtimeMs;
            fs.utimesSync(path, 1, 1);
            if (fs.statSync(path).mtimeMs === before) throw new Error("nothing changed");
        });
    }
    for (const [name, pid] of Object.entries(world.signal ?? {})) {
        await attempt(`signal ${name}`, () => process.kill(pid, "SIGCONT"));
    }
    await attempt("thread", () => new Promise((resolve, reject) => {
        const worker = new Worker("0", { eval: true });
        worker.on("error", reject);
        worker.on("exit", resolve);
    }));
    return done;
}

if (process.argv[2] === "attack") {
    console.log(JSON.stringify(await attack(JSON.parse(process.argv[3]))));
    process.exit(0);
}
connect();
createInterface({ input: process.stdin, crlfDelay: Infinity }).on("line", (line) => {
    const command = JSON.parse(line);
    if (!deaf) commands[command.type](command);
}).on("close", () => process.exit(0));
