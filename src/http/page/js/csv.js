// CSV as RFC 4180 has it, read from a stream and written row by row.

/// Takes text in pieces; gives rows of cells.
export class CsvReader {
  constructor(separator) {
    this.separator = separator;
    this.row = [];
    this.cell = "";
    this.quoted = false;
    this.afterQuote = false;
    this.begun = false;
  }

  push(chunk, isEnd = false) {
    const out = [];
    const separator = this.separator;
    for (let at = 0; at < chunk.length; at += 1) {
      const sign = chunk[at];
      if (this.quoted) {
        if (this.afterQuote) {
          this.afterQuote = false;
          if (sign === '"') { this.cell += '"'; continue; }
          this.quoted = false;
        } else if (sign === '"') { this.afterQuote = true; continue; } else { this.cell += sign; continue; }
      }
      if (sign === '"' && this.cell === "") { this.quoted = true; this.begun = true; }
      else if (sign === separator) { this.row.push(this.cell); this.cell = ""; this.begun = true; }
      else if (sign === "\n") this.endRow(out);
      else if (sign !== "\r") { this.cell += sign; this.begun = true; }
    }
    if (isEnd && (this.begun || this.cell)) this.endRow(out);
    return out;
  }

  endRow(out) {
    this.quoted = false;
    this.afterQuote = false;
    if (this.begun || this.cell) out.push([...this.row, this.cell]);
    this.row = [];
    this.cell = "";
    this.begun = false;
  }
}

/// The separator that the first line uses most.
export function guessSeparator(line) {
  return [",", ";", "\t", "|"].map((sign) => [sign, line.split(sign).length]).sort((a, b) => b[1] - a[1])[0][0];
}

/// One cell, quoted where that is needed. Text that a spreadsheet would run as a formula is quoted with an apostrophe
/// only where `safe` is asked for.
export function cell(value, safe = false) {
  if (value === undefined || value === null) return "";
  let written = typeof value === "string" ? value : JSON.stringify(value);
  if (safe && typeof value === "string" && /^[=+\-@\t\r]/.test(written)) written = "'" + written;
  return /[",\n\r]/.test(written) ? `"${written.replaceAll('"', '""')}"` : written;
}

/// What a cell of CSV stands for: numbers that are written as JSON has them, true, false, null, JSON objects and arrays.
export function typed(written) {
  if (/^-?(0|[1-9]\d*)(\.\d+)?([eE][+-]?\d+)?$/.test(written) || /^(true|false|null)$/.test(written)) return written;
  if (/^[[{].*[\]}]$/s.test(written)) {
    try { JSON.parse(written); return written; } catch { /* Text that looks like it. */ }
  }
  return JSON.stringify(written);
}
