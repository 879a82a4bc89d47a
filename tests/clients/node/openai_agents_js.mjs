// @openai/agents: agents over responses, which is its default, and over chat completions.
import { Agent, OpenAIChatCompletionsModel, OpenAIResponsesModel, Runner, setTracingDisabled, tool } from "@openai/agents";
import OpenAI from "openai";
import { z } from "zod";
import { AGENT, KEY, MODEL, PROMPT, TOOL_PROMPT, V1, check, run } from "./cells.mjs";

setTracingDisabled(true);
const client = new OpenAI({ baseURL: V1, apiKey: KEY, maxRetries: 0 });
const weather = tool({
  name: "weather",
  description: "Look up the weather",
  parameters: z.object({ city: z.string() }),
  execute: async ({ city }) => `18 degrees in ${city}`,
});
const agent = (model, tools = []) => new Agent({ name: "a", model, tools });
const runner = new Runner();

await run([
  ["responses", "plain", async () => {
    const result = await runner.run(agent(new OpenAIResponsesModel(client, MODEL)), PROMPT);
    check(result.finalOutput, "no text");
  }],
  ["responses", "tools", async () => {
    const result = await runner.run(agent(new OpenAIResponsesModel(client, AGENT), [weather]), TOOL_PROMPT);
    check(result.finalOutput.includes("18 degrees"), "the result was not used");
  }],
  ["responses", "stream", async () => {
    const result = await runner.run(agent(new OpenAIResponsesModel(client, AGENT), [weather]), TOOL_PROMPT, { stream: true });
    for await (const _ of result) { /* read to the end */ }
    await result.completed;
    check(result.finalOutput.includes("18 degrees"), "the result was not used");
  }],
  ["chat", "chat_tools", async () => {
    const result = await runner.run(agent(new OpenAIChatCompletionsModel(client, AGENT), [weather]), TOOL_PROMPT);
    check(result.finalOutput.includes("18 degrees"), "the result was not used");
  }],
]);
