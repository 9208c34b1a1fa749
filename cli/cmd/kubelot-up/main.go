// Command kubelot-up runs the crew in the foreground. kubelot up becomes it (docs/adr/0035), and nobody else starts it.
package main

import (
	"os"

	"kubelot.dev/cli/internal/up"
)

func main() { os.Exit(up.Main()) }
