// Anthropic's coding agent: one prompt over messages, with its own system prompt and tools.
import { AGENT, KEY, URL_ROOT, check, run } from "./cells.mjs";
import { folder, ran } from "./programs.mjs";

await run([
  ["messages", "prompt", async () => {
    const settings = {
      ANTHROPIC_BASE_URL: URL_ROOT,
      ANTHROPIC_API_KEY: KEY,
      ANTHROPIC_MODEL: AGENT,
      ANTHROPIC_SMALL_FAST_MODEL: AGENT,
      CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC: "1",
    };
    const output = ran(["claude", "-p", "Say hello.", "--model", AGENT], folder(), settings);
    check(output.includes("Hello from the upstream"), output.slice(-2000));
  }],
]);
