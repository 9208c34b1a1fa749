// Package ui serves a page for a browser on loopback: the crew at work, how each pod has started and what it waits for,
// and what has happened on the node.
//
// # Reads
//
// All states and events of the bus, by packages live and why; the history that the bus keeps.
//
// # Writes
//
// Nothing. Each request reads.
//
// # Guarantees
//
//   - The page opens once, by the token in the address that the command prints. After that the browser has a cookie
//     that no script can read, and that the browser sends from this page only.
//   - A request with the name of another host, or from another page, is refused: a page elsewhere can neither read nor
//     guess its way in by DNS rebinding.
//   - The page loads nothing from anywhere else and runs no inline script. Its policy says so to the browser.
//   - Texts of containers, runtimes and registries are put into the page as text only.
//   - The last picture stays while the bus is away, and the page says from when it is.
//   - When Serve returns, nothing listens any more, and each open page has been told so.
package ui
