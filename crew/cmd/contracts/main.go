// Command contracts writes what is generated from the daemons' contracts: docs/dataflow.md, the bus's permissions and
// what kubelot ui draws. It also writes the index of the decisions in docs/adr. With -check it only reports whether
// they are up to date.
package main

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"

	"kubelot.dev/bus/topic"
	"kubelot.dev/crew"
)

func main() {
	root := flag.String("root", "..", "the repository's root `directory`")
	check := flag.Bool("check", false, "only check that the files are up to date")
	flag.Parse()
	if err := run(*root, *check); err != nil {
		fmt.Fprintln(os.Stderr, "contracts:", err)
		os.Exit(1)
	}
}

func run(root string, check bool) error {
	topics, contracts := topic.All(), crew.Contracts()
	if err := crew.Check(topics, contracts); err != nil {
		return err
	}
	permissions, err := crew.Permissions(topics, contracts)
	if err != nil {
		return err
	}
	flows, err := crew.Flows(topics, contracts)
	if err != nil {
		return err
	}
	decisions := filepath.Join(root, "docs", "adr")
	index, err := adrIndex(decisions)
	if err != nil {
		return err
	}
	return errors.Join(
		put(filepath.Join(decisions, "README.md"), index, check),
		put(filepath.Join(root, "docs", "dataflow.md"), crew.Dataflow(topics, contracts), check),
		put(filepath.Join(root, "bus", "embed", "crew_gen.json"), permissions, check),
		put(filepath.Join(root, "cli", "internal", "ui", "flows.json"), flows, check),
	)
}

func put(path string, want []byte, check bool) error {
	have, err := os.ReadFile(path)
	if err == nil && bytes.Equal(have, want) {
		return nil
	}
	if check {
		return fmt.Errorf("%s is out of date: run `go run ./cmd/contracts` in crew/", path)
	}
	return os.WriteFile(path, want, 0o644)
}
