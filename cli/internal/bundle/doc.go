// Package bundle packs what is known of a node into an archive that can be sent to others.
//
// # Reads
//
// The bus, the daemons' command lines and metrics, the journal, /proc and the cgroups.
//
// # Guarantees
//
//   - The archive has a bound, and so has each file in it. What was cut off, and what could not be collected and why,
//     is in its manifest.json.
//   - A source that fails or hangs costs only its own file.
//   - Values of env entries, HTTP probe headers, kubectl's copy of the manifest, annotations of the runtime, and
//     headers and passwords of the configuration are left out. Logs are as the programs wrote them.
//   - The node isn't changed.
package bundle
