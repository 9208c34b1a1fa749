package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestADRIndexIsUpToDate(t *testing.T) {
	const dir = "../../../docs/adr"
	want, err := adrIndex(dir)
	if err != nil {
		t.Fatal(err)
	}
	have, err := os.ReadFile(filepath.Join(dir, "README.md"))
	if err != nil || !bytes.Equal(have, want) {
		t.Errorf("docs/adr/README.md is out of date (%v): make gen writes it", err)
	}
}

// What the index has is kept, what it lacks is added, and what can't be is an error.
func TestADRIndex(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	index := func() string {
		t.Helper()
		data, err := adrIndex(dir)
		if err != nil {
			t.Fatal(err)
		}
		return string(data)
	}
	fails := func(want string) {
		t.Helper()
		if _, err := adrIndex(dir); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want an error with %q", err, want)
		}
	}
	write("0001-a.md", "# 1. First\n")
	write("README.md", "| 0001 | [Old title](0001-a.md) | replaced in part by 0002 | 2020-01-02 |\n"+
		"| 0003 | [Gone](0003-c.md) | accepted | 2020-01-02 |\n")
	fails("there is no decision 0002")
	write("0002-b.md", "Text.\n\n# Second\n")
	text := index()
	for _, want := range []string{
		"| 0001 | [First](0001-a.md) | replaced in part by 0002 | 2020-01-02 |\n",
		"| 0002 | [Second](0002-b.md) | accepted | 20",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("the index lacks %q:\n%s", want, text)
		}
	}
	if strings.Contains(text, "Gone") {
		t.Errorf("the index has a record that doesn't exist:\n%s", text)
	}
	write("0002-c.md", "# Third\n")
	fails("have one number")
	write("0002-c.md", "no heading")
	fails("has no heading")
	if err := os.Remove(filepath.Join(dir, "0002-c.md")); err != nil {
		t.Fatal(err)
	}
	write("README.md", "| 0001 | [First](0001-a.md) | perhaps | 2020-01-02 |\n")
	fails(`"perhaps" is none`)
}
