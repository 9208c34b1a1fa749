package logquery

import (
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
	"time"
)

func query(t *testing.T, text string) *Query {
	t.Helper()
	values, err := url.ParseQuery(text)
	if err != nil {
		t.Fatal(err)
	}
	q, errs := Parse(values)
	if len(errs) > 0 {
		t.Fatalf("%s: %v", text, errs.ToAggregate())
	}
	return q
}

func TestParse(t *testing.T) {
	for _, text := range []string{"", "pattern=", "other=1"} {
		if q := query(t, text); q != nil {
			t.Errorf("%q is a query: %+v", text, q)
		}
	}
	q := query(t,
		"query=kubelet&query=containerd&query=/syslog&sinceTime=2026-01-02T03:04:05%2B01:00&tailLines=5&boot=-1&pattern=a.*b")
	if !slices.Equal(q.Services, []string{"kubelet", "containerd"}) || !slices.Equal(q.Files, []string{"/syslog"}) ||
		*q.TailLines != 5 || *q.Boot != -1 || q.Pattern != "a.*b" ||
		!q.Since.Equal(time.Date(2026, 1, 2, 2, 4, 5, 0, time.UTC)) || q.Until != nil {
		t.Errorf("%+v", q)
	}
	for text, want := range map[string]string{
		"query=": "may not be empty", "query=%20": "may not be empty", "query=a&sinceTime=yesterday": "invalid time format",
		"query=a&untilTime=1": "invalid time format", "query=a&boot=x": "boot", "query=a&tailLines=1.5": "tailLines",
	} {
		values, _ := url.ParseQuery(text)
		if _, errs := Parse(values); len(errs) != 1 || !strings.Contains(errs[0].Error(), want) {
			t.Errorf("%q: %v, want an error with %q", text, errs, want)
		}
	}
}

func TestValidate(t *testing.T) {
	files := fstest.MapFS{"syslog": {}, "sub/app.log": {}}
	for _, text := range []string{
		"query=kubelet", "query=a&query=b&query=c&query=d", "query=/syslog", "query=sub%5Capp.log", "query=a&boot=0",
		"query=a&tailLines=100000",
		"query=getty@tty1.service", "query=a&pattern=%5Ea%7Cb",
	} {
		if errs := query(t, text).Validate(files); len(errs) > 0 {
			t.Errorf("%q: %v", text, errs.ToAggregate())
		}
	}
	for text, want := range map[string]string{
		"query=a%20b": "unsupported characters", "query=a;b": "", "query=a%0A": "unsupported characters",
		"query=%24(id)":                           "unsupported characters",
		"query=" + strings.Repeat("a", 257):       "length must be less than 256",
		"query=a&query=b&query=c&query=d&query=e": "must have at most 4 items",
		"tailLines=5":                             "cannot be empty with options",
		"query=a&query=/syslog":                   "cannot specify a file and service",
		"query=/syslog&query=/sub":                "cannot specify more than one file",
		"query=/syslog&boot=0":                    "cannot specify file with options",
		"query=/none":                             "not exist",
		"query=/../etc/passwd":                    "not exist",
		"query=a&boot=1":                          "must be less than 1",
		"query=a&tailLines=-1":                    "must be between 0 and 100000",
		"query=a&tailLines=100001":                "must be between 0 and 100000",
		"query=a&pattern=(":                       "missing closing )",
		"query=a&pattern=%00":                     "unsupported characters",
		"query=a&sinceTime=2026-01-02T00:00:00Z&untilTime=2026-01-01T00:00:00Z": "must be after `sinceTime`",
	} {
		values, err := url.ParseQuery(text)
		if err != nil {
			continue // the server has refused it
		}
		q, _ := Parse(values)
		if errs := q.Validate(files); len(errs) != 1 || !strings.Contains(errs[0].Error(), want) {
			t.Errorf("%q: %v, want an error with %q", text, errs, want)
		}
	}
}

func TestArguments(t *testing.T) {
	q := query(t,
		"query=kubelet&query=containerd&sinceTime=2026-01-02T03:04:05%2B01:00&untilTime=2026-01-03T00:00:00Z"+
			"&tailLines=5&boot=-1&pattern=--x")
	want := []string{
		"--utc", "--no-pager", "--output=short-precise", "--since=2026-1-2 02:4:5 UTC", "--until=2026-1-3 00:0:0 UTC",
		"--pager-end", "--lines=5",
		"--unit=kubelet", "--unit=containerd", "--grep=--x", "--boot=-1",
	}
	if got := arguments(q.Options, q.Services); !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

// journal is a journalctl that knows the unit kubelet.service and shows what it was called with.
const journal = `#!/bin/sh
if [ "$1" = --field ]; then echo kubelet.service; echo my-app.service; exit; fi
echo "asked:" "$@"
`

// broken is one that fails.
const broken = "#!/bin/sh\necho 'no journal files were found' >&2\nexit 1\n"

func copied(t *testing.T, script, text string) string {
	t.Helper()
	dir := t.TempDir()
	program := filepath.Join(dir, "journalctl")
	if script != "" {
		if err := os.WriteFile(program, []byte(script), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	var out strings.Builder
	Journal{Program: program, Files: fstest.MapFS{
		"app": {Mode: os.ModeDir}, "app.log": {Data: []byte("from app.log\n")}, "web/web.log": {Data: []byte("from web\n")},
		"pipe": {Mode: os.ModeNamedPipe},
	}}.Copy(t.Context(), &out, query(t, text))
	return out.String()
}

func TestCopy(t *testing.T) {
	for _, c := range []struct{ script, query, want string }{
		{journal, "query=kubelet&tailLines=2", "asked: --utc --no-pager --output=short-precise --pager-end --lines=2 " +
			"--unit=kubelet\n"},
		{journal, "query=app", "from app.log\n"}, // my-app is another unit
		{journal, "query=kubelet.service&query=web", "asked: --utc --no-pager --output=short-precise " +
			"--unit=kubelet.service\nfrom web\n"},
		{
			journal, "query=app&boot=0",
			"\noptions present and query resolved to log files for [app]\ntry without specifying options\n",
		},
		{journal, "query=none", "\nlog not found for none\n"},
		{journal, "query=pipe", "\nerror getting log for pipe: pipe is no file\n"},
		{journal, "query=..", "\nlog not found for ..\n"},
		{broken, "query=kubelet", "\nlog not found for kubelet\n"},
		{"", "query=app", "from app.log\n"},
	} {
		if got := copied(t, c.script, c.query); got != c.want {
			t.Errorf("%s: %q, want %q", c.query, got, c.want)
		}
	}
}
