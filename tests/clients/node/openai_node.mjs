// openai-node: chat completions, responses, completions and embeddings.
import OpenAI from "openai";
import { AGENT, ENCODER, KEY, MODEL, PROMPT, TOOL_PROMPT, V1, check, run } from "./cells.mjs";

const client = new OpenAI({ baseURL: V1, apiKey: KEY, maxRetries: 0 });
const parameters = { type: "object", properties: { city: { type: "string" } }, required: ["city"], additionalProperties: false };
const tool = { type: "function", function: { name: "weather", parameters } };
const messages = [{ role: "user", content: PROMPT }];

await run([
  ["chat", "plain", async () => {
    const answer = await client.chat.completions.create({ model: MODEL, messages, max_tokens: 16 });
    check(answer.choices[0].message.content, "no text");
  }],
  ["chat", "stream", async () => {
    const events = await client.chat.completions.create({ model: MODEL, messages, max_tokens: 16, stream: true });
    let text = "";
    for await (const event of events) text += event.choices[0]?.delta?.content ?? "";
    check(text, "no text");
  }],
  ["chat", "tools", async () => {
    let numCalls = 0;
    const runner = client.chat.completions.runTools({
      model: AGENT,
      messages: [{ role: "user", content: TOOL_PROMPT }],
      tools: [{ type: "function", function: { name: "weather", parameters, parse: JSON.parse, function: () => { numCalls += 1; return "18 degrees"; } } }],
    });
    check((await runner.finalContent()).includes("18 degrees"), "the result was not used");
    check(numCalls === 1, "the tool was not called once");
  }],
  ["chat", "tool_stream", async () => {
    const stream = client.chat.completions.stream({ model: AGENT, messages: [{ role: "user", content: TOOL_PROMPT }], tools: [tool] });
    const final = await stream.finalChatCompletion();
    check(final.choices[0].message.tool_calls[0].function.name === "weather", "no call");
  }],
  ["completions", "completion", async () => {
    const answer = await client.completions.create({ model: MODEL, prompt: PROMPT, max_tokens: 8 });
    check(typeof answer.choices[0].text === "string", "no text");
  }],
  ["embeddings", "embeddings", async () => {
    const answer = await client.embeddings.create({ model: ENCODER, input: ["a cat", "a dog"] });
    check(answer.data[1].embedding.length > 100, "no vector");
  }],
  ["responses", "response", async () => {
    const answer = await client.responses.create({ model: MODEL, input: PROMPT, max_output_tokens: 16 });
    check(answer.output_text, "no text");
  }],
  ["responses", "response_stream", async () => {
    const stream = client.responses.stream({ model: MODEL, input: PROMPT, max_output_tokens: 16 });
    check((await stream.finalResponse()).output_text, "no text");
  }],
]);
