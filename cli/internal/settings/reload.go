package settings

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"kubelot.dev/bus/pause"
	"kubelot.dev/cli/internal/paint"
	"kubelot.dev/daemon"
)

// reloadWithin bounds the wait for a daemon. Its loop takes what has changed, and may be busy.
const reloadWithin = 20 * time.Second

// maxAnswer bounds what is read of a daemon's answer.
const maxAnswer = 1 << 20

// Reload says what came of it that the daemons read their configuration again.
type Reload struct {
	Daemons []DaemonReload `json:"daemons"`
	// Fields are those that some daemon found changed, by name.
	Fields []FieldReload `json:"fields,omitempty"`
	// Units are the systemd units to be restarted so that everything is taken.
	Units []string `json:"units,omitempty"`
}

// DaemonReload is one daemon's answer.
type DaemonReload struct {
	daemon.Reloaded
	PID int `json:"pid"`
}

// FieldReload says which daemons have taken a changed field, and which take it at their next start. A field without
// either concerns no daemon that runs.
type FieldReload struct {
	Name    string   `json:"name"`
	Taken   []string `json:"taken,omitempty"`
	Restart []string `json:"restart,omitempty"`
}

// Failed names the daemons that have taken nothing because of an error.
func (r Reload) Failed() []string {
	var names []string
	for _, d := range r.Daemons {
		if d.Error != "" {
			names = append(names, d.Daemon)
		}
	}
	return names
}

// ReloadCrew has all daemons of the crew read their configuration again, side by side.
func ReloadCrew(ctx context.Context, crew []Daemon, runDir string) Reload {
	return summary(ask(ctx, http.MethodPost, crew, runDir))
}

// pending says which daemons run with other values than a reload or their next start would give them, a sentence each.
// known is false if a daemon doesn't say so.
func pending(ctx context.Context, crew []Daemon, runDir string) (sentences []string, known bool) {
	for _, a := range ask(ctx, http.MethodGet, crew, runDir) {
		if a.Error != "" {
			return nil, false
		}
		if len(a.Changed) > 0 {
			sentences = append(sentences, fmt.Sprintf("%s runs with other values of %s", a.Daemon,
				strings.Join(a.Changed, ", ")))
		}
	}
	return sentences, true
}

// ask asks all daemons, side by side.
func ask(ctx context.Context, method string, crew []Daemon, runDir string) []DaemonReload {
	answers := make([]DaemonReload, len(crew))
	var asking sync.WaitGroup
	for i, d := range crew {
		asking.Go(func() {
			socket := filepath.Join(runDir, "metrics", d.Name+".sock")
			answer, err := askOne(ctx, method, socket)
			if err != nil {
				answer.Error = err.Error()
			}
			answer.Daemon = d.Name
			answers[i] = DaemonReload{answer, d.PID}
		})
	}
	asking.Wait()
	return answers
}

// summary joins the daemons' answers by field.
func summary(answers []DaemonReload) Reload {
	r := Reload{Daemons: answers}
	fields, inProcess := map[string]*FieldReload{}, map[int]int{}
	for _, a := range answers {
		inProcess[a.PID]++
		for _, name := range slices.Concat(a.Changed, a.Taken, a.Restart) {
			if fields[name] == nil {
				fields[name] = &FieldReload{Name: name}
			}
		}
		for _, name := range a.Taken {
			fields[name].Taken = append(fields[name].Taken, a.Daemon)
		}
		for _, name := range a.Restart {
			fields[name].Restart = append(fields[name].Restart, a.Daemon)
		}
	}
	for _, f := range fields {
		r.Fields = append(r.Fields, *f)
	}
	slices.SortFunc(r.Fields, func(a, b FieldReload) int { return cmp.Compare(a.Name, b.Name) })
	for _, a := range answers {
		if len(a.Restart) > 0 {
			r.Units = append(r.Units, unitOf(a, inProcess[a.PID] > 1))
		}
	}
	slices.Sort(r.Units)
	r.Units = slices.Compact(r.Units)
	return r
}

func unitOf(a DaemonReload, shared bool) string {
	if shared {
		return "kubelot-compact"
	}
	return "kubelot-" + a.Daemon
}

// askOne asks one daemon, at its socket. A daemon that sleeps is woken to reload, and asked again. A question alone
// doesn't wake it: nothing is pending, since it reads its configuration when it wakes.
func askOne(ctx context.Context, method, socket string) (answer daemon.Reloaded, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, reloadWithin, fmt.Errorf("no answer within %s", reloadWithin))
	defer cancel()
	answer, err = askOnce(ctx, method, socket)
	switch {
	case !errors.Is(err, errAsleep):
		return answer, err
	case method == http.MethodGet:
		return daemon.Reloaded{}, nil
	}
	for err != nil && ctx.Err() == nil {
		pause.For(ctx, wakingPause)
		answer, err = askOnce(ctx, method, socket)
	}
	return answer, err
}

// wakingPause is the pause before a daemon that is being woken is asked again.
const wakingPause = 100 * time.Millisecond

// errAsleep is the answer for a daemon that slept.
var errAsleep = errors.New("it sleeps, and has been woken: try again")

// askOnce asks a daemon once; the error is errAsleep for one that sleeps.
func askOnce(ctx context.Context, method, socket string) (answer daemon.Reloaded, err error) {
	transport := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", socket)
	}}
	defer transport.CloseIdleConnections()
	request, err := http.NewRequestWithContext(ctx, method, "http://daemon"+daemon.ReloadPath, nil)
	if err != nil {
		return answer, err
	}
	response, err := transport.RoundTrip(request)
	if err != nil {
		return answer, fmt.Errorf("ask the daemon at %s: %w", socket, err)
	}
	defer response.Body.Close()
	if response.StatusCode == http.StatusServiceUnavailable {
		return answer, errAsleep
	}
	if response.StatusCode != http.StatusOK {
		return answer, fmt.Errorf("it can't reload (%s), since it is of an earlier release: restart it", response.Status)
	}
	if err := json.NewDecoder(io.LimitReader(response.Body, maxAnswer)).Decode(&answer); err != nil {
		return daemon.Reloaded{}, fmt.Errorf("answer of the daemon: %w", err)
	}
	return answer, nil
}

// ReloadText is the report for a terminal.
func ReloadText(r Reload, p paint.Painter) string {
	var out strings.Builder
	for _, f := range r.Fields {
		if len(f.Taken) > 0 {
			fmt.Fprintf(&out, "%s %s: by %s\n", p.Paint(paint.Green, "taken  "), f.Name, strings.Join(f.Taken, ", "))
		}
		if len(f.Restart) > 0 {
			fmt.Fprintf(&out, "%s %s: taken by %s at the next start only\n", p.Paint(paint.Yellow, "restart"), f.Name,
				strings.Join(f.Restart, ", "))
		}
		if len(f.Taken)+len(f.Restart) == 0 {
			fmt.Fprintf(&out, "moot    %s: it concerns no daemon that runs\n", f.Name)
		}
	}
	told := map[string]bool{}
	for _, d := range r.Daemons {
		if d.Error == "" || told[d.Error] {
			continue
		}
		told[d.Error] = true
		var names []string
		for _, o := range r.Daemons {
			if o.Error == d.Error {
				names = append(names, o.Daemon)
			}
		}
		fmt.Fprintf(&out, "%s %s: %s\n", p.Paint(paint.Red, "BAD    "), strings.Join(names, ", "), indented(d.Error))
	}
	if len(r.Units) > 0 {
		fmt.Fprintf(&out, "        -> %s\n", p.Paint(paint.Bold, "systemctl restart "+strings.Join(r.Units, " ")))
		out.WriteString("           pods go on running; without systemd, start kubelot up again\n")
	}
	if out.Len() == 0 {
		out.WriteString("same    the daemons run with this configuration already\n")
	}
	return out.String()
}
