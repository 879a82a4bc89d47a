// AI SDK: its providers `openai` (responses by default, and chat), `openai-compatible` and `anthropic`.
import { createAnthropic } from "@ai-sdk/anthropic";
import { createOpenAI } from "@ai-sdk/openai";
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { embed, generateText, Output, stepCountIs, streamText, tool } from "ai";
import { z } from "zod";
import { AGENT, ENCODER, KEY, MODEL, PROMPT, TOOL_PROMPT, V1, check, run } from "./cells.mjs";

const openai = createOpenAI({ baseURL: V1, apiKey: KEY });
const compatible = createOpenAICompatible({ name: "penstock", baseURL: V1, apiKey: KEY, includeUsage: true, supportsStructuredOutputs: true });
const anthropic = createAnthropic({ baseURL: V1, apiKey: KEY });
const weather = tool({
  description: "Look up the weather",
  inputSchema: z.object({ city: z.string() }),
  execute: async ({ city }) => `18 degrees in ${city}`,
});
const once = { maxRetries: 0 };

async function plain(model) {
  check((await generateText({ model, prompt: PROMPT, maxOutputTokens: 16, ...once })).text, "no text");
}

async function streamed(model) {
  const result = streamText({ model, prompt: PROMPT, maxOutputTokens: 16, ...once, onError: ({ error }) => { throw error; } });
  let text = "";
  for await (const piece of result.textStream) text += piece;
  check(text, "no text");
  check((await result.usage).outputTokens > 0, "no usage");
}

async function looped(model) {
  const result = await generateText({ model, prompt: TOOL_PROMPT, tools: { weather }, stopWhen: stepCountIs(3), ...once });
  check(result.text.includes("18 degrees"), "the result was not used");
}

async function loopedStream(model) {
  const result = streamText({ model, prompt: TOOL_PROMPT, tools: { weather }, stopWhen: stepCountIs(3), ...once });
  check((await result.text).includes("18 degrees"), "the result was not used");
}

async function structured(model) {
  const output = Output.object({ schema: z.object({ value: z.number().int() }) });
  const result = await generateText({ model, prompt: PROMPT, output, ...once });
  check(Number.isInteger(result.output.value), "no value");
}

const providers = [
  ["responses", "openai", openai],
  ["chat", "openai_chat", openai.chat],
  ["chat", "openai_compatible", compatible],
  ["messages", "anthropic", anthropic],
];
const cells = providers.flatMap(([surface, name, provider]) => [
  [surface, `${name}_plain`, () => plain(provider(MODEL))],
  [surface, `${name}_stream`, () => streamed(provider(MODEL))],
  [surface, `${name}_tools`, () => looped(provider(AGENT))],
  [surface, `${name}_tool_stream`, () => loopedStream(provider(AGENT))],
  ...(name === "anthropic" ? [] : [[surface, `${name}_structured`, () => structured(provider(AGENT))]]),
]);

await run([
  ...cells,
  ["embeddings", "embedding", async () => {
    const { embedding } = await embed({ model: openai.textEmbeddingModel(ENCODER), value: "a cat", ...once });
    check(embedding.length > 100, "no vector");
  }],
]);
