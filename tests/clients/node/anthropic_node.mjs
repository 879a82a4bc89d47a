// @anthropic-ai/sdk: messages, streams and tools.
import Anthropic from "@anthropic-ai/sdk";
import { AGENT, KEY, MODEL, PROMPT, TOOL_PROMPT, URL_ROOT, check, run } from "./cells.mjs";

const client = new Anthropic({ baseURL: URL_ROOT, apiKey: KEY, maxRetries: 0 });
const messages = [{ role: "user", content: PROMPT }];
const tools = [{ name: "weather", input_schema: { type: "object", properties: { city: { type: "string" } }, required: ["city"] } }];

await run([
  ["messages", "plain", async () => {
    const answer = await client.messages.create({ model: MODEL, max_tokens: 16, messages });
    check(answer.content[0].type === "text", "no text");
  }],
  ["messages", "stream", async () => {
    const final = await client.messages.stream({ model: MODEL, max_tokens: 16, messages }).finalMessage();
    check(final.content[0].text, "no text");
  }],
  ["messages", "tool_stream", async () => {
    const asked = [{ role: "user", content: TOOL_PROMPT }];
    const final = await client.messages.stream({ model: AGENT, max_tokens: 64, messages: asked, tools }).finalMessage();
    check(final.stop_reason === "tool_use", "no call");
  }],
]);
