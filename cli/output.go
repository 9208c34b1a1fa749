package cli

import (
	"fmt"

	"github.com/spf13/cobra"
)

// offerOutput gives a command the flag -o. text is what the command writes unless JSON is asked for.
func offerOutput(c *cobra.Command, output *string, text string) {
	c.Flags().StringVarP(output, "output", "o", text, text+" or json")
	complete(c, "output", []string{text, "json"})
}

// checkOutput refuses formats that there aren't.
func checkOutput(output, text string) error {
	if output != text && output != "json" {
		return fmt.Errorf("-o %q: want %s or json", output, text)
	}
	return nil
}
