// Gives pi the tools that the executor offers, and nothing else.
//
// The connector writes this file before it starts pi. Each call goes over one inherited socket, which
// has no name and which nobody else holds, to the connector; that adds the turn, asks the executor and
// answers. Whether a call happens is decided there. What is thrown here reaches the model as a tool
// error. Nothing may be thrown outside `execute`: that would end pi.
import { readFileSync } from "node:fs";
import { Socket } from "node:net";

const STOPPED = "The turn was stopped.";
const GONE = "The connector is gone.";

export default function (pi) {
    const tools = JSON.parse(readFileSync(process.env.SAGE_TOOLS, "utf8"));
    const socket = new Socket({ fd: Number(process.env.SAGE_SOCKET), readable: true, writable: true });
    const waiting = new Map();
    let calls = 0;
    let gone = false;
    let text = "";

    const send = (message) => socket.write(JSON.stringify(message) + "\n");
    const settle = (id) => {
        const call = waiting.get(id);
        waiting.delete(id);
        call?.signal?.removeEventListener("abort", call.cancel);
        return call;
    };
    const lost = () => {
        gone = true;
        for (const id of [...waiting.keys()]) settle(id).reject(new Error(GONE));
    };
    const receive = (message) => {
        // Sent back as it came, so that the connector knows that every call before it is of an
        // earlier turn.
        if (message.type === "turn") return send(message);
        if (message.type !== "result") return;
        const call = settle(message.id);
        if (message.failed) call?.reject(new Error(message.text));
        else call?.resolve({ content: [{ type: "text", text: message.text }], details: {} });
    };

    socket.setEncoding("utf8");
    socket.on("error", lost);
    socket.on("close", lost);
    socket.on("data", (chunk) => {
        const lines = (text + chunk).split("\n");
        text = lines.pop();
        for (const line of lines) {
            try {
                receive(JSON.parse(line));
            } catch {
                // A line that is no message answers nothing.
            }
        }
    });

    for (const tool of tools) {
        pi.registerTool({
            ...tool,
            label: tool.name,
            execute: (_toolCallId, args, signal) =>
                new Promise((resolve, reject) => {
                    if (gone) return reject(new Error(GONE));
                    if (signal?.aborted) return reject(new Error(STOPPED));
                    const id = String(++calls);
                    const cancel = () => {
                        settle(id);
                        send({ type: "cancel", id });
                        reject(new Error(STOPPED));
                    };
                    waiting.set(id, { resolve, reject, signal, cancel });
                    signal?.addEventListener("abort", cancel, { once: true });
                    send({ type: "call", id, tool: tool.name, arguments: args ?? {} });
                }),
        });
    }
}
