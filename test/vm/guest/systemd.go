package guest

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"kubelot.dev/deploy"
)

// Unit is what systemd says of a unit.
type Unit struct {
	Name        string
	ActiveState string
	MainPID     string
	NRestarts   string // how often systemd has started it again by itself
}

// Running reports whether the unit's service has said that it is ready.
func (u Unit) Running() bool { return u.ActiveState == "active" && u.MainPID != "0" }

// Systemctl runs systemctl with the arguments, which the machine's shell reads.
func (g *Guest) Systemctl(ctx context.Context, args string) (string, error) {
	return g.Machine.Run(ctx, "systemctl --no-pager "+args)
}

// atTheEnd are the services of kubelot that run something only when the system stops.
var atTheEnd = []string{"kubelot-shutdown.service", "kubelot-containers.service"}

// DaemonUnits are the services of all daemons, in the order of their names.
func DaemonUnits() []string {
	names, err := deploy.Daemons()
	if err != nil {
		panic(err) // the units are embedded
	}
	for i, name := range names {
		names[i] = "kubelot-" + name + ".service"
	}
	slices.Sort(names)
	return names
}

// Units are the services of kubelot's daemons that systemd knows to be wanted.
func (g *Guest) Units(ctx context.Context) ([]string, error) {
	out, err := g.Systemctl(ctx, "show -P Wants kubelot.target")
	if err != nil {
		return nil, err
	}
	var services []string
	for _, name := range strings.Fields(out) {
		if strings.HasSuffix(name, ".service") && !slices.Contains(atTheEnd, name) {
			services = append(services, name)
		}
	}
	if len(services) == 0 {
		return nil, fmt.Errorf("kubelot.target wants no service: %q", out)
	}
	return services, nil
}

// Show asks systemd for units, all at once. The answer has each of them by its name.
func (g *Guest) Show(ctx context.Context, names ...string) (map[string]Unit, error) {
	out, err := g.Systemctl(ctx, "show -p Id -p ActiveState -p MainPID -p NRestarts "+strings.Join(names, " "))
	if err != nil {
		return nil, err
	}
	all := parseUnits(out)
	for _, name := range names {
		if all[name].ActiveState == "" || all[name].MainPID == "" {
			return nil, fmt.Errorf("systemd says of %s: %q", name, out)
		}
	}
	return all, nil
}

// parseUnits reads what `systemctl show` prints: lines with a property, and an empty one after each unit.
func parseUnits(out string) map[string]Unit {
	all := map[string]Unit{}
	for block := range strings.SplitSeq(out, "\n\n") {
		var u Unit
		for line := range strings.Lines(block) {
			key, value, _ := strings.Cut(strings.TrimSpace(line), "=")
			switch key {
			case "Id":
				u.Name = value
			case "ActiveState":
				u.ActiveState = value
			case "MainPID":
				u.MainPID = value
			case "NRestarts":
				u.NRestarts = value
			}
		}
		all[u.Name] = u
	}
	return all
}
