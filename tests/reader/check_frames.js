// check_frames.js - compares decoded zstd frames with those of another decoder.
//
// usage: node check_frames.js READER.js FRAMES.  For each frame FRAMES has four u32: bytes of the frame, bytes of its content,
// 1 if the other decoder accepted it, 1 if it is undamaged; then the frame and, if accepted, its content.  A frame that the
// other decoder rejects must be rejected, and a frame that is accepted must have its content.  A damaged frame that the
// other decoder accepts although it breaks RFC 8878 may be rejected.
'use strict';
const fs = require('fs');
const path = require('path');
const { decodeFrame } = require(path.resolve(process.argv[2]));

const data = fs.readFileSync(process.argv[3]);
const count = { equal: 0, rejected: 0, stricter: 0 };
let wrong = 0;
for (let at = 0; at < data.length;) {
  const [n, size, accepted, whole] = [0, 4, 8, 12].map((k) => data.readUInt32LE(at + k));
  const frame = new Uint8Array(data.subarray(at + 16, at + 16 + n));
  at += 16 + n + (accepted ? size : 0);
  let got = null;
  try {
    got = Buffer.from(decodeFrame(frame, size));
  } catch (e) {
    if (e instanceof RangeError || e instanceof TypeError)
      console.log(`not a clean error: ${e.message}`);
  }
  if (got && !(accepted && got.equals(data.subarray(at - size, at)))) {
    console.log(`wrong bytes for ${Buffer.from(frame).toString('hex').slice(0, 200)}`);
    wrong++;
  } else if (!got && whole) {
    console.log(`rejected an undamaged frame of ${size} bytes`);
    wrong++;
  }
  count[got ? 'equal' : accepted ? 'stricter' : 'rejected']++;
}
console.log(`frames: ${count.equal} equal, ${count.rejected} rejected by both, ${count.stricter} rejected here only`);
process.exit(wrong ? 1 : 0);
