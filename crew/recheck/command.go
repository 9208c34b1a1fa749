package recheck

import (
	"encoding/json"
	"fmt"
	"io"
	"os"

	"github.com/spf13/pflag"
)

// The exit codes of the command, which kubelot replay --check passes on.
const (
	exitFailed  = 1
	exitDiffers = 3
)

// Run is the command "kubelot-all check FILE", which kubelot replay --check runs. It returns the exit code.
func Run(args []string, stdout, stderr io.Writer) int {
	flags := pflag.NewFlagSet("check", pflag.ContinueOnError)
	flags.SetOutput(stderr)
	output := flags.StringP("output", "o", "text", "text or json")
	if err := flags.Parse(args); err != nil {
		fmt.Fprintln(stderr, err)
		return exitFailed
	}
	if flags.NArg() != 1 || *output != "text" && *output != "json" {
		fmt.Fprintln(stderr, "check: want one recording, and -o text or json")
		return exitFailed
	}
	report, err := checkFile(flags.Arg(0))
	if err == nil {
		err = write(stdout, report, *output)
	}
	switch {
	case err != nil:
		fmt.Fprintln(stderr, err)
		return exitFailed
	case len(report.Differences) > 0:
		return exitDiffers
	}
	return 0
}

func checkFile(path string) (Report, error) {
	file, err := os.Open(path)
	if err != nil {
		return Report{}, err
	}
	defer file.Close()
	report, err := judge(file, ownCores())
	if err != nil {
		return report, fmt.Errorf("%s: %w", path, err)
	}
	return report, nil
}

func write(out io.Writer, r Report, output string) error {
	if output == "json" {
		encoder := json.NewEncoder(out)
		encoder.SetIndent("", "  ")
		return encoder.Encode(r)
	}
	_, err := io.WriteString(out, r.text())
	return err
}
