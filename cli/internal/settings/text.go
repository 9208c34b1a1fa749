package settings

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"kubelot.dev/cli/internal/paint"
	"kubelot.dev/cli/internal/words"
	"kubelot.dev/daemon/config"
)

// longValue is how many characters of a value are shown.
const longValue = 100

// Text is the report for a terminal. all also shows the settings that aren't set.
func Text(r Report, all bool, p paint.Painter) string {
	var out strings.Builder
	fmt.Fprintf(&out, "Configuration (%s): %s\n", r.From, strings.Join(r.Flags, " "))
	if r.Error != "" {
		fmt.Fprintf(&out, "%s     %s\n", p.Paint(paint.Red, "BAD"), indented(r.Error))
		return out.String()
	}
	quiet := true
	for _, s := range r.Settings {
		if all || len(s.SetIn) > 0 && !nameless(s.Name) {
			out.WriteString(settingText(s, p))
			quiet = false
		}
	}
	for _, sentence := range r.Ignored {
		fmt.Fprintf(&out, "%s %s\n", p.Paint(paint.Yellow, "unknown"), indented(sentence))
		quiet = false
	}
	if quiet {
		out.WriteString("Everything has its default.\n")
	}
	if r.Running != nil {
		out.WriteString(runningText(*r.Running, p))
	}
	return out.String()
}

// nameless are flags that name a place and are in the first line already.
func nameless(name string) bool { return name == "--config" || name == "--config-dir" }

func settingText(s Setting, p paint.Painter) string {
	word := string(s.Level)
	if s.Level == config.Supported {
		word = "ok"
	}
	word = fmt.Sprintf("%-7s", word)
	if s.Problem != "" {
		word = p.Paint(paint.Yellow, word)
	}
	value := shown(s.Value)
	if s.Value == nil && len(s.SetIn) > 0 {
		value = "empty" // such as a list without items, which JSON leaves out
	}
	text := fmt.Sprintf("%s %s: %s", word, s.Name, value)
	if !reflect.DeepEqual(s.Value, s.Default) {
		text += fmt.Sprintf(" (default %s)", shown(s.Default))
	}
	if n := len(s.SetIn); n > 0 && s.SetIn[n-1] != s.Name {
		text += ", set in " + s.SetIn[n-1]
		if n > 1 {
			text += " over " + strings.Join(s.SetIn[:n-1], ", ")
		}
	}
	switch {
	case s.Problem != "":
		text += "\n        -> " + s.Problem
	case s.Note != "" && s.Level == config.Moot:
		text += "\n        " + s.Note
	case s.Note != "":
		text += "\n        not yet: " + s.Note
	}
	return text + "\n"
}

// shown is a value in one line.
func shown(value any) string {
	if value == nil {
		return "not set"
	}
	data, err := json.Marshal(value)
	if err != nil {
		return err.Error()
	}
	text := string(data)
	if utf8.RuneCountInString(text) > longValue {
		text = string([]rune(text)[:longValue]) + "..."
	}
	return words.OneLine(text)
}

func runningText(r Running, p paint.Painter) string {
	var out strings.Builder
	names := make([]string, 0, len(r.Daemons))
	oldest := r.Daemons[0].Started
	for _, d := range r.Daemons {
		names = append(names, d.Name)
		if d.Started.Before(oldest) {
			oldest = d.Started
		}
	}
	fmt.Fprintf(&out, "\nRunning: %s, the first since %s\n", strings.Join(slices.Compact(names), ", "),
		oldest.Format(time.RFC3339))
	if r.Error != "" {
		fmt.Fprintf(&out, "%s     %s\n", p.Paint(paint.Red, "BAD"), indented(r.Error))
	}
	differs := p.Paint(paint.Yellow, "differs")
	for _, d := range r.Different {
		fmt.Fprintf(&out, "%s %s: %s, and %s in the daemons\n", differs, d.Name, shown(d.Here), shown(d.Running))
	}
	for _, sentence := range r.Stale {
		fmt.Fprintf(&out, "%s %s\n", p.Paint(paint.Yellow, "stale  "), sentence)
	}
	if len(r.Stale) > 0 {
		out.WriteString("        -> kubelot config reload has them read it again, and names what needs a restart\n")
	}
	for _, sentence := range r.Mixed {
		fmt.Fprintf(&out, "%s %s\n", p.Paint(paint.Yellow, "mixed  "), sentence)
	}
	if r.Same() {
		out.WriteString("same    the daemons run with this configuration\n")
	}
	return out.String()
}

// indented is a text of several lines below its first one.
func indented(text string) string { return strings.ReplaceAll(text, "\n", "\n        ") }
