// Programs as clients: their command lines end well and state what they were answered.
import { spawnSync } from "node:child_process";
import { mkdtempSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";

const BIN = join(dirname(fileURLToPath(import.meta.url)), "node_modules", ".bin");

export function folder() {
  return mkdtempSync(join(tmpdir(), "penstock-client-"));
}

export function ran(command, home, more = {}) {
  const env = { ...process.env, HOME: home, NO_COLOR: "1", CI: "1", ...more };
  const done = spawnSync(join(BIN, command[0]), command.slice(1), { cwd: home, env, encoding: "utf8", timeout: 240000, input: "" });
  const output = `${done.stdout}${done.stderr}`;
  if (done.status !== 0) throw new Error(`${command[0]} ended with ${done.status}:\n${output.slice(-2800)}`);
  return output;
}
