"""node: objects, buffers, JSON, compression, asynchronous files and worker threads."""
import tempfile

import app

SCRIPT = r"""
const { Worker, isMainThread, parentPort, workerData } = require('worker_threads');
const zlib = require('zlib'), crypto = require('crypto'), fs = require('fs');
function work(seed) {
  let state = seed;
  const draw = (n) => (state = (state * 48271) % 2147483647) % n;
  const records = [];
  for (let i = 0; i < 20000; i++) records.push({ id: i, name: 'n' + draw(1e6), list: [draw(9), draw(99), draw(999)] });
  const text = JSON.stringify(records);
  const packed = zlib.deflateSync(text, { level: 6 });
  const back = JSON.parse(zlib.inflateSync(packed).toString());
  const buffers = [];
  for (let i = 0; i < 3000; i++) {
    const buffer = Buffer.alloc(draw(20000) + 1, i & 255);
    buffers[draw(300)] = buffer;
  }
  const hash = crypto.createHash('sha256').update(text).update(packed);
  for (const buffer of buffers) if (buffer) hash.update(buffer);
  return back.length + ' ' + hash.digest('hex');
}
if (isMainThread) {
  console.log(work(7));
  const seeds = [11, 13, 17, 19];
  Promise.all(seeds.map((seed) => new Promise((resolve, reject) => {
    const worker = new Worker(__filename, { workerData: seed });
    worker.on('message', resolve); worker.on('error', reject);
  }))).then(async (lines) => {
    lines.forEach((line) => console.log(line));
    await Promise.all([...Array(50).keys()].map((i) => fs.promises.writeFile('f' + i, 'x'.repeat(i * 1000))));
    const sizes = await Promise.all([...Array(50).keys()].map(async (i) => (await fs.promises.readFile('f' + i)).length));
    console.log(sizes.reduce((a, b) => a + b));
  });
} else parentPort.postMessage(work(workerData));
"""


def test():
    app.need("node")
    with tempfile.TemporaryDirectory() as folder:
        with open(folder + "/main.js", "w", encoding="utf-8") as script:
            script.write(SCRIPT)
        app.same(["node", "main.js"], 4 << 20, cwd=folder)
    return "node: ok"


if __name__ == "__main__":
    app.main(test)
