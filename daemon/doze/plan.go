package doze

import (
	"errors"
	"strconv"
	"strings"
)

// Variable is the environment variable that has the Plan.
const Variable = "KUBELOT_DOZE"

// Plan is what a daemon leaves to the program that waits in its place. It travels as text, a line for each file
// descriptor, since a decoder would cost more memory than the rest of the program.
type Plan struct {
	// Page is a file with the daemon's metrics, Metrics the socket on which they are asked for.
	Page, Metrics int
	// Alarm is the socket on which others wake the daemon.
	Alarm int
	// Doors are the sockets of its clients.
	Doors []Door
}

// Door is a listening unix socket. The daemon gets it back when it is woken, with the connections that wait there.
type Door struct {
	FD int
	// Name is that in LISTEN_FDNAMES.
	Name string
	// Path is the socket's file. If it is gone nobody can come in, and the daemon is woken to make another one.
	Path string
}

// String is the plan as text. No name or path may have a line break.
func (p Plan) String() string {
	var text strings.Builder
	line := func(kind string, fd int, rest ...string) {
		text.WriteString(kind + " " + strconv.Itoa(fd))
		for _, r := range rest {
			text.WriteString(" " + r)
		}
		text.WriteByte('\n')
	}
	line("page", p.Page)
	line("metrics", p.Metrics)
	line("alarm", p.Alarm)
	for _, d := range p.Doors {
		line("door", d.FD, d.Name, d.Path)
	}
	return text.String()
}

var errPlan = errors.New("the environment variable " + Variable + " isn't what a daemon of kubelot sets")

// parse reads a plan that String has written.
func parse(text string) (Plan, error) {
	p := Plan{Page: -1, Metrics: -1, Alarm: -1}
	for line := range strings.Lines(text) {
		kind, rest, _ := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
		if !p.take(kind, rest) {
			return Plan{}, errPlan
		}
	}
	if min(p.Page, p.Metrics, p.Alarm) < 0 {
		return Plan{}, errPlan
	}
	return p, nil
}

// take reads what a line says of a kind, and reports whether it could.
func (p *Plan) take(kind, rest string) bool {
	number, rest, more := strings.Cut(rest, " ")
	fd, err := strconv.Atoi(number)
	if err != nil || fd < 0 {
		return false
	}
	if kind == "door" {
		name, path, _ := strings.Cut(rest, " ")
		p.Doors = append(p.Doors, Door{fd, name, path})
		return name != "" && path != ""
	}
	one := map[string]*int{"page": &p.Page, "metrics": &p.Metrics, "alarm": &p.Alarm}[kind]
	if one == nil || more {
		return false
	}
	*one = fd
	return true
}
