package cli

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestUIRefuses(t *testing.T) {
	empty := t.TempDir()
	for name, c := range map[string]struct {
		args []string
		want string
	}{
		"no crew":    {[]string{"--run-dir", empty}, "there is no key of the bus at " + empty},
		"bad output": {[]string{"-o", "xml"}, "want text or json"},
		"bad time":   {[]string{"--for", "-1s"}, "want a positive duration"},
		"bad port":   {[]string{"--port", "65536"}, "--port"},
		"argument":   {[]string{"web-0"}, "web-0"},
	} {
		t.Run(name, func(t *testing.T) {
			command := uiCommand(os.Stdout)
			command.SilenceUsage, command.SilenceErrors = true, true
			command.SetArgs(c.args)
			if err := command.ExecuteContext(t.Context()); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("error %v, want %q", err, c.want)
			}
		})
	}
}

func TestUISaysItsAddress(t *testing.T) {
	ends := time.Date(2026, 11, 20, 12, 30, 0, 0, time.UTC)
	for output, want := range map[string]string{
		"text": "http://x/?token=y\nThe address opens the page once, in one browser. " +
			"It is served until Ctrl-C, or 12:30.\n",
		"json": `{"url":"http://x/?token=y","ends":"2026-11-20T12:30:00Z"}`,
	} {
		path := filepath.Join(t.TempDir(), "out")
		out, err := os.Create(path)
		if err != nil {
			t.Fatal(err)
		}
		err = sayOpened(out, output, uiOpened{URL: "http://x/?token=y", Ends: ends})
		out.Close()
		text, readErr := os.ReadFile(path)
		if err != nil || readErr != nil {
			t.Fatal(err, readErr)
		}
		got := string(text)
		if output == "json" {
			var o uiOpened
			if err := json.Unmarshal(text, &o); err != nil {
				t.Fatal(err)
			}
			compact, _ := json.Marshal(o)
			got = string(compact)
		}
		if got != want {
			t.Errorf("-o %s: %q, want %q", output, got, want)
		}
	}
}
