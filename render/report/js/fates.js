// fates.js - the fate of every entry of a trace, for all KV heads at once.

class Fates {
  // heads: [{name, layer, index, block}]; end, hits, first: numbers of the tokens per head, undefined if not recorded.
  constructor(table, heads, columns) {
    Object.assign(this, { table, heads, ...columns });
  }

  static async read(trace) {
    const table = trace.table('eviction');
    if (!table || !table.rows || !table.has('evict_step'))
      return null;
    const of = async (name) => (table.has(name) ? Promise.all(trace.blocks(table, (b) => table.column(name).numbers(b))) : undefined);
    const heads = await trace.headsOf(table), [end, hits, first] = await Promise.all(['evict_step', 'hits', 'first_hit'].map(of));
    return new Fates(table, heads, { end, hits, first });
  }

  // Returns kvfate's word for the reason, or undefined if not recorded.
  async reason(head, i) {
    const c = this.table.has('reason') ? this.table.column('reason') : null;
    return c ? (await c.strings(head.block))[i] : undefined;
  }

  held(i) {
    return this.end.reduce((n, e) => n + (e[i] < 0), 0);
  }

  // Returns {hits, heads, first} of entry i over all heads, or null if not recorded.
  missed(i) {
    if (!this.hits)
      return null;
    const out = { hits: 0, heads: 0, first: Infinity };
    this.hits.forEach((h, k) => {
      out.hits += h[i];
      out.heads += h[i] > 0;
      if (h[i] > 0 && this.first && this.first[k][i] < out.first)
        out.first = this.first[k][i];
    });
    return out;
  }

}
