// Cells of one client's script: functions that fail when the client cannot do what they are named for.
export const URL_ROOT = process.env.PENSTOCK_URL ?? "http://127.0.0.1:8080";
export const V1 = URL_ROOT + "/v1";
export const KEY = process.env.PENSTOCK_KEY ?? "unused";
export const MODEL = process.env.PENSTOCK_MODEL ?? "auto";
export const AGENT = process.env.PENSTOCK_AGENT ?? "agent";
export const ENCODER = process.env.PENSTOCK_ENCODER ?? "";
export const PROMPT = "What is 3 + 4?";
export const TOOL_PROMPT = "Use the tool to look up the weather in Paris.";

export function check(value, text) {
  if (!value) throw new Error(text);
}

export async function run(cells) {
  const wanted = new Set(process.argv.slice(2));
  let numFailed = 0;
  for (const [surface, name, body] of cells) {
    if (wanted.size && !wanted.has(name)) continue;
    const beganAt = Date.now();
    let error = null;
    try {
      await body();
    } catch (failure) {
      error = String(failure?.stack ?? failure).slice(0, 3000);
      numFailed += 1;
    }
    const seconds = (Date.now() - beganAt) / 1000;
    console.log("CELL " + JSON.stringify({ surface, cell: name, error, seconds }));
  }
  process.exit(Math.min(numFailed, 99));
}
