package main

import (
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra/doc"

	"kubelot.dev/cli"
)

func copyright() []byte {
	return []byte(`Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/
Upstream-Name: kubelot

Files: *
Copyright: 2026 the authors of kubelot
License: Apache-2.0
 On Debian systems the full text of the Apache License, version 2.0, is in
 /usr/share/common-licenses/Apache-2.0.
 The executables contain libraries of others; the release's bill of materials
 (*.cdx.json) lists them with their versions.
`)
}

// changelog is a package's changelog: the changes themselves are in CHANGELOG.md.
func (s *stage) changelog(name, version string) ([]byte, error) {
	text := fmt.Sprintf("%s (%s) stable; urgency=medium\n\n  * Version %s; see CHANGELOG.md in the source.\n\n"+
		" -- kubelot <maintainers@kubelot.dev>  %s\n",
		name, version, s.version, s.time.Format("Mon, 02 Jan 2006 15:04:05 -0700"))
	return compressed([]byte(text))
}

// compressed is what gzip -9n makes.
func compressed(content []byte) ([]byte, error) {
	var out bytes.Buffer
	w, err := gzip.NewWriterLevel(&out, gzip.BestCompression)
	if err != nil {
		return nil, err
	}
	_, err = w.Write(content)
	err = errors.Join(err, w.Close())
	return out.Bytes(), err
}

// commandLine adds the manual pages of the command line, one for each command, and the completions of shells.
func (s *stage) commandLine(into map[string][]byte, dir string) error {
	root := cli.Command(os.Stdout, os.Stderr)
	root.DisableAutoGenTag = true
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("write manual pages: %w", err)
	}
	header := &doc.GenManHeader{Section: "1", Source: "kubelot " + s.version, Manual: "kubelot", Date: &s.time}
	if err := doc.GenManTree(root, header, dir); err != nil {
		return fmt.Errorf("write manual pages: %w", err)
	}
	pages, err := filepath.Glob(filepath.Join(dir, "*.1"))
	if err != nil {
		return fmt.Errorf("find the manual pages: %w", err)
	}
	for _, page := range pages {
		text, err := os.ReadFile(page)
		if err != nil {
			return fmt.Errorf("read a manual page: %w", err)
		}
		target := "/usr/share/man/man1/" + filepath.Base(page) + ".gz"
		if into[target], err = compressed(text); err != nil {
			return fmt.Errorf("compress %s: %w", page, err)
		}
	}
	// A shell of its own for each, since generating adds commands.
	var bash, zsh, fish strings.Builder
	err = errors.Join(
		cli.Command(os.Stdout, os.Stderr).GenBashCompletionV2(&bash, true),
		cli.Command(
			os.Stdout,
			os.Stderr,
		).GenZshCompletion(
			&zsh,
		),
		cli.Command(os.Stdout, os.Stderr).GenFishCompletion(&fish, true),
	)
	into["/usr/share/bash-completion/completions/kubelot"] = []byte(bash.String())
	into["/usr/share/zsh/vendor-completions/_kubelot"] = []byte(zsh.String())
	into["/usr/share/fish/vendor_completions.d/kubelot.fish"] = []byte(fish.String())
	return err
}
