// codex CLI: one task over responses, with its own system prompt and tools.
import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { AGENT, KEY, V1, check, run } from "./cells.mjs";
import { folder, ran } from "./programs.mjs";

await run([
  ["responses", "task", async () => {
    const home = folder();
    mkdirSync(join(home, ".codex"));
    writeFileSync(join(home, ".codex", "config.toml"), [
      `model = "${AGENT}"`,
      'model_provider = "penstock"',
      "[model_providers.penstock]",
      'name = "Penstock"',
      `base_url = "${V1}"`,
      'env_key = "PENSTOCK_KEY"',
      'wire_api = "responses"',
      "request_max_retries = 0",
      "stream_max_retries = 0",
    ].join("\n"));
    const command = ["codex", "exec", "--skip-git-repo-check", "--sandbox", "read-only", "Say hello."];
    const output = ran(command, home, { PENSTOCK_KEY: KEY, CODEX_HOME: join(home, ".codex") });
    check(output.includes("Hello from the upstream"), output.slice(-2000));
  }],
]);
