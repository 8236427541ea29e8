"""Plays a conversation with an MCP server by the official Python SDK, and says what came of it.

Standard input: {"server": [program, argument...], "mode": "legacy" | "auto",
"elicit": "accept" | "decline" | null, "roots": bool, "steps": [step...]}.
A step is {"list": true}, {"call": name, "args": {...}}, or a call with {"cancelWhen": [file, text]},
which is cancelled once the file holds the text; or {"pause": file}, which makes the file and waits
until somebody has taken it away.
Standard output: {"version", "server", "instructions", "asked": [...], "rootsAsked", "results": [...]}.
"""

import json
import os
import sys

import anyio
import mcp_types as types
from mcp import Client, MCPError, StdioServerParameters


async def cancelled_call(client, step):
    path, text = step["cancelWhen"]
    async with anyio.create_task_group() as group:

        async def call():
            await client.call_tool(step["call"], step["args"])

        group.start_soon(call)
        while text not in open(path, encoding="utf-8").read():
            await anyio.sleep(0.02)
        group.cancel_scope.cancel()
    return {"cancelled": True}


async def play(client, step):
    if "pause" in step:
        open(step["pause"], "x", encoding="utf-8").close()
        while os.path.exists(step["pause"]):
            await anyio.sleep(0.02)
        return {}
    if step.get("list"):
        listed = await client.list_tools()
        return [tool.model_dump(mode="json", by_alias=True) for tool in listed.tools]
    if "cancelWhen" in step:
        return await cancelled_call(client, step)
    try:
        result = await client.call_tool(step["call"], step["args"])
    except MCPError as error:
        return {"error": str(error)}
    return result.model_dump(mode="json", by_alias=True)


async def main():
    script = json.load(sys.stdin)
    asked, roots_asked = [], 0

    async def elicit(context, params):
        asked.append(params.message)
        return types.ElicitResult(action=script["elicit"], content={} if script["elicit"] == "accept" else None)

    async def roots(context):
        nonlocal roots_asked
        roots_asked += 1
        return types.ListRootsResult(roots=[types.Root(uri="file:///")])

    program, *arguments = script["server"]
    client = Client(
        StdioServerParameters(command=program, args=arguments),
        mode=script["mode"],
        elicitation_callback=elicit if script.get("elicit") else None,
        list_roots_callback=roots if script.get("roots") else None,
    )
    async with client:
        results = [await play(client, step) for step in script["steps"]]
        said = {
            "version": client.protocol_version,
            "server": client.server_info.name,
            "instructions": client.instructions,
            "asked": asked,
            "rootsAsked": roots_asked,
            "results": results,
        }
    json.dump(said, sys.stdout)


anyio.run(main)
