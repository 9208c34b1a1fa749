package main

import (
	"cmp"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"time"
)

// accepted is the status of a record that nothing has replaced.
const accepted = "accepted"

// record is one line of the index of decisions.
type record struct{ number, title, file, status, date string }

const adrHead = `# Decisions

Each record says what was measured or found, what was chosen, and what was given up. A record is not rewritten when a
later one changes its decision: the later one gets a number of its own, and the status here says which one it is.

To add a record: write ` + "`docs/adr/<number>-<title>.md`" + ` with the title as its heading, and run ` +
	"`make gen`" + `. That writes
this index from the headings. It keeps the statuses and dates below. A new record is "accepted", with the date of the
commit that added its file. A status is "accepted", "replaced by N" or "replaced in part by N", and is edited here.

| number | title | status | date |
|---|---|---|---|
`

// adrIndex is the content of README.md in the directory of the records, with the statuses and dates that it has now.
func adrIndex(dir string) ([]byte, error) {
	files, err := filepath.Glob(filepath.Join(dir, "[0-9]*.md"))
	if err != nil {
		return nil, err
	}
	known := map[string]record{}
	if index, err := os.ReadFile(filepath.Join(dir, "README.md")); err == nil {
		known = parseIndex(string(index))
	}
	var out strings.Builder
	out.WriteString(adrHead)
	numbers := map[string]string{}
	for _, path := range files {
		r, err := readRecord(path)
		if err != nil {
			return nil, err
		}
		if other := numbers[r.number]; other != "" {
			return nil, fmt.Errorf("%s and %s have one number: give the later one the next free number", other, r.file)
		}
		numbers[r.number] = r.file
		r.status = cmp.Or(known[r.number].status, accepted)
		if r.date = known[r.number].date; r.date == "" {
			r.date = added(path)
		}
		fmt.Fprintf(&out, "| %s | [%s](%s) | %s | %s |\n", r.number, r.title, r.file, r.status, r.date)
	}
	for number, r := range known {
		if err := checkStatus(r.status, numbers); err != nil {
			return nil, fmt.Errorf("the status of decision %s: %w", number, err)
		}
	}
	return []byte(out.String()), nil
}

var (
	heading  = regexp.MustCompile(`(?m)^# (?:\d+\. )?(.+)$`)
	line     = regexp.MustCompile(`(?m)^\| (\d+) \| \[(.+)\]\((.+)\) \| (.+) \| (\d{4}-\d\d-\d\d) \|$`)
	replaced = regexp.MustCompile(`^replaced (?:in part )?by (\d+)$`)
)

func readRecord(path string) (record, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return record{}, err
	}
	m := heading.FindSubmatch(data)
	if m == nil {
		return record{}, fmt.Errorf("%s has no heading", path)
	}
	file := filepath.Base(path)
	number, _, _ := strings.Cut(file, "-")
	return record{number: number, title: string(m[1]), file: file}, nil
}

func parseIndex(text string) map[string]record {
	known := map[string]record{}
	for _, m := range line.FindAllStringSubmatch(text, -1) {
		known[m[1]] = record{m[1], m[2], m[3], m[4], m[5]}
	}
	return known
}

// checkStatus is an error where the status isn't one, or names a record that doesn't exist.
func checkStatus(status string, numbers map[string]string) error {
	if status == accepted {
		return nil
	}
	m := replaced.FindStringSubmatch(status)
	if m == nil {
		return fmt.Errorf("%q is none: accepted, replaced by N, or replaced in part by N", status)
	}
	if numbers[m[1]] == "" {
		return fmt.Errorf("%q: there is no decision %s", status, m[1])
	}
	return nil
}

// added is the day on which the file came into the repository; today for one that is not committed.
func added(path string) string {
	args := []string{"log", "--diff-filter=A", "--format=%as", "--", filepath.Base(path)}
	git := exec.Command("git", args...) //nolint:noctx // it takes a moment
	git.Dir = filepath.Dir(path)
	out, err := git.Output()
	if dates := strings.Fields(string(out)); err == nil && len(dates) > 0 {
		return dates[len(dates)-1]
	}
	return time.Now().Format(time.DateOnly)
}
