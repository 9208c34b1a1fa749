// Package page takes the commands out of a page of the documentation, so that a test does what the page says.
//
// Reads: a Markdown file. Writes and owns: nothing.
package page

import (
	"fmt"
	"os"
	"strings"
)

// Commands are the shell commands in the section with the heading: what stands in its blocks of sh, block by block.
func Commands(path, heading string) ([]string, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("commands of a page: %w", err)
	}
	found, err := commands(string(text), heading)
	if err != nil {
		return nil, fmt.Errorf("commands of %s: %w", path, err)
	}
	return found, nil
}

func commands(text, heading string) ([]string, error) {
	_, section, found := strings.Cut("\n"+text, "\n## "+heading+"\n")
	if !found {
		return nil, fmt.Errorf("there is no section %q", heading)
	}
	var all []string
	var block strings.Builder
	inside := false
	for line := range strings.Lines(section) {
		switch {
		case !inside && strings.HasPrefix(line, "## "):
			return all, nil
		case !inside && line == "```sh\n":
			inside = true
		case inside && strings.HasPrefix(line, "```"):
			all = append(all, block.String())
			inside = false
			block.Reset()
		case inside:
			block.WriteString(line)
		}
	}
	if inside {
		return nil, fmt.Errorf("a block of section %q doesn't end", heading)
	}
	return all, nil
}

// Fill puts values in the place of what a reader fills in. Each must be there.
func Fill(command string, values map[string]string) (string, error) {
	for name, value := range values {
		if !strings.Contains(command, name) {
			return "", fmt.Errorf("the command %q has no %s to be filled in", command, name)
		}
		command = strings.ReplaceAll(command, name, value)
	}
	return command, nil
}
