// checksums.js - the checksums of a trace: CRC-32C of bytes, XXH3-64 of headers, and the XXH64 of
// zstd frames.  Hashes of 64 bits are BigInt values.

const CRC_TABLES = (() => {
  const tables = Array.from({ length: 8 }, () => new Int32Array(256));
  for (let i = 0; i < 256; i++) {
    let v = i;
    for (let k = 0; k < 8; k++)
      v = v & 1 ? v >>> 1 ^ 0x82f63b78 : v >>> 1;
    tables[0][i] = v;
  }
  for (let k = 1; k < 8; k++)
    for (let i = 0; i < 256; i++)
      tables[k][i] = tables[k - 1][i] >>> 8 ^ tables[0][tables[k - 1][i] & 255];
  return tables;
})();

// Returns the CRC-32C of bytes that follow bytes with the CRC-32C `before`, as an unsigned number.
function crc32c(bytes, before = 0) {
  const [t0, t1, t2, t3, t4, t5, t6, t7] = CRC_TABLES, n = bytes.length, whole = n - n % 8;
  let crc = ~before, i = 0;
  for (; i < whole; i += 8) {
    crc ^= bytes[i] | bytes[i + 1] << 8 | bytes[i + 2] << 16 | bytes[i + 3] << 24;
    crc = t7[crc & 255] ^ t6[crc >>> 8 & 255] ^ t5[crc >>> 16 & 255] ^ t4[crc >>> 24]
      ^ t3[bytes[i + 4]] ^ t2[bytes[i + 5]] ^ t1[bytes[i + 6]] ^ t0[bytes[i + 7]];
  }
  for (; i < n; i++)
    crc = crc >>> 8 ^ t0[(crc ^ bytes[i]) & 255];
  return ~crc >>> 0;
}

const ONES64 = (1n << 64n) - 1n;
const viewOf = (bytes) => new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);

// The first 128 bytes of the secret of XXH3, as words of 8 bytes.
const XXH3_SECRET = ['be4ba423396cfeb8', '1cad21f72c81017c', 'db979083e96dd4de', '1f67b3b7a4a44072', '78e5c0cc4ee679cb', '2172ffcc7dd05a82',
  '8e2443f7744608b8', '4c263a81e69035e0', 'cb00c391bb52283c', 'a32e531b8b65d088', '4ef90da297486471', 'd8acdea946ef1938', '3f349ce33f76faa8',
  '1d4f0bc7c7bbdcf9', '3159b4cd4be0518a', '647378d9c97e9fc8'].map((word) => BigInt(`0x${word}`));

// Returns the XXH3-64 (seed 0) of 17 to 128 bytes.
function hash64(bytes) {
  const view = viewOf(bytes), n = bytes.length, word = (at) => view.getBigUint64(at, true);
  const fold = (at, k) => {
    const product = (word(at) ^ XXH3_SECRET[k]) * (word(at + 8) ^ XXH3_SECRET[k + 1]);
    return product & ONES64 ^ product >> 64n;
  };
  let sum = BigInt(n) * 0x9e3779b185ebca87n;
  for (let k = 0; k <= (n - 1) >> 5; k++)
    sum += fold(16 * k, 4 * k) + fold(n - 16 * (k + 1), 4 * k + 2);
  sum &= ONES64;
  sum = (sum ^ sum >> 37n) * 0x165667919e3779f9n & ONES64;
  return sum ^ sum >> 32n;
}

// Returns the lowest 32 bits of the XXH64 (seed 0) of bytes: the checksum that a zstd frame may have.
function frameChecksum(bytes) {
  const [p1, p2, p3, p4, p5] = [0x9e3779b185ebca87n, 0xc2b2ae3d27d4eb4fn, 0x165667b19e3779f9n, 0x85ebca77c2b2ae63n, 0x27d4eb2f165667c5n];
  const view = viewOf(bytes), n = bytes.length, turned = (v, k) => (v << k | v >> 64n - k) & ONES64;
  const round = (sum, v) => turned(sum + v * p2 & ONES64, 31n) * p1 & ONES64;
  let at = 0, h = p5;
  if (n >= 32) {
    const lane = [p1 + p2 & ONES64, p2, 0n, -p1 & ONES64];
    for (; at + 32 <= n; at += 32)
      for (let k = 0; k < 4; k++)
        lane[k] = round(lane[k], view.getBigUint64(at + 8 * k, true));
    h = turned(lane[0], 1n) + turned(lane[1], 7n) + turned(lane[2], 12n) + turned(lane[3], 18n) & ONES64;
    for (const v of lane)
      h = (h ^ round(0n, v)) * p1 + p4 & ONES64;
  }
  h = h + BigInt(n) & ONES64;
  for (; at + 8 <= n; at += 8)
    h = turned(h ^ round(0n, view.getBigUint64(at, true)), 27n) * p1 + p4 & ONES64;
  for (; at + 4 <= n; at += 4)
    h = turned(h ^ BigInt(view.getUint32(at, true)) * p1 & ONES64, 23n) * p2 + p3 & ONES64;
  for (; at < n; at++)
    h = turned(h ^ BigInt(bytes[at]) * p5 & ONES64, 11n) * p1 & ONES64;
  h = (h ^ h >> 33n) * p2 & ONES64;
  h = (h ^ h >> 29n) * p3 & ONES64;
  return Number((h ^ h >> 32n) & 0xffffffffn);
}
