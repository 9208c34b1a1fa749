package iscsi

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os/exec"
	"slices"
	"strings"
	"time"

	"kubelot.dev/bus/topic"
	"kubelot.dev/services/volume/internal/plugin"
	"kubelot.dev/services/volume/internal/program"
)

// What iscsiadm ends with (iscsi_err.h of open-iscsi).
const (
	sessionNotFound = 2
	sessionExists   = 15
	nothingFound    = 21
)

// errNoProgram is in the error of a disk on a node without iscsiadm.
var errNoProgram = errors.New("this node has no iscsiadm: install open-iscsi (Debian, Ubuntu, SUSE) or " +
	"iscsi-initiator-utils (Red Hat)")

// The names of what is in the secret, which are iscsiadm's own.
var (
	discoveryKeys = authKeys("discovery.sendtargets.auth.")
	sessionKeys   = authKeys("node.session.auth.")
)

func authKeys(prefix string) []string {
	return []string{prefix + "username", prefix + "password", prefix + "username_in", prefix + "password_in"}
}

// admin is iscsiadm for one disk.
type admin struct {
	programs *program.Runner
	disk     Disk
	secret   map[string]string
	// limit is how long a call may take.
	limit time.Duration
}

// run runs iscsiadm for a mode, such as node, and returns what it says.
func (a *admin) run(ctx context.Context, mode string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, a.limit, fmt.Errorf("it has not ended within %s", a.limit))
	defer cancel()
	secret := make([]string, 0, len(a.secret))
	for _, value := range a.secret {
		if value != "" {
			secret = append(secret, value)
		}
	}
	command := program.Command{
		About: "iSCSI " + a.disk.Iqn + " " + a.disk.Iface, Name: "iscsiadm", Args: append([]string{"-m", mode}, args...),
		Secret: secret,
	}
	ended, _ := plugin.Call(ctx, topic.DriverCall{Call: command.String(), Since: time.Now()})
	defer ended()
	out, err := a.programs.Run(ctx, command)
	if errors.Is(err, exec.ErrNotFound) {
		return "", errNoProgram
	}
	if err != nil {
		err = fmt.Errorf("%s: %w, output: %s", command, err, command.Strip(out))
	}
	return out, err
}

// node runs iscsiadm for what its database has of the target at the portal.
func (a *admin) node(ctx context.Context, portal string, args ...string) error {
	_, err := a.run(ctx, "node", append([]string{"-p", portal, "-T", a.disk.Iqn, "-I", a.disk.Iface}, args...)...)
	return err
}

func (a *admin) discovery(ctx context.Context, portal string, args ...string) error {
	_, err := a.run(ctx, "discoverydb",
		append([]string{"-t", "sendtargets", "-p", portal, "-I", a.disk.Iface}, args...)...)
	return err
}

// passes lets pass what iscsiadm has ended with.
func passes(err error, codes ...int) error {
	var exit *exec.ExitError
	if errors.As(err, &exit) && slices.Contains(codes, exit.ExitCode()) {
		return nil
	}
	return err
}

// transport is how the interface reaches targets, such as tcp.
func (a *admin) transport(ctx context.Context) (string, error) {
	settings, err := a.iface(ctx)
	if err != nil {
		return "", fmt.Errorf("iscsi: could not read iface %s error: %w", a.disk.InitIface, err)
	}
	switch t, ok := settings["iface.transport_name"]; {
	case !ok:
		return "", fmt.Errorf("iscsi: could not parse iface file for %s", a.disk.InitIface)
	case t == unset:
		return "tcp", nil
	default:
		return t, nil
	}
}

// unset is a setting without a value.
const unset = "<empty>"

// iface are the settings of the interface that the user names.
func (a *admin) iface(ctx context.Context) (map[string]string, error) {
	out, err := a.run(ctx, "iface", "-I", a.disk.InitIface, "-o", "show")
	if err != nil {
		return nil, err
	}
	settings := map[string]string{}
	for text := range strings.Lines(out) {
		name, value, ok := strings.Cut(strings.TrimSpace(text), " = ")
		if ok && strings.HasPrefix(name, "iface.") {
			settings[name] = value
		}
	}
	return settings, nil
}

// cloned reports whether the disk has an interface of its own.
func (d Disk) cloned() bool { return d.InitiatorName != "" && d.Iface == d.Portals[0]+":"+d.VolName }

// clone makes the disk's own interface: like the one that the user names, with another initiator.
func (a *admin) clone(ctx context.Context) error {
	if a.disk.InitIface == a.disk.Iface {
		return fmt.Errorf("iscsi: cannot clone iface with same name: %s", a.disk.InitIface)
	}
	settings, err := a.iface(ctx)
	if err != nil {
		return fmt.Errorf("iscsi: failed to show iface records: %w", err)
	}
	settings["iface.initiatorname"] = a.disk.InitiatorName
	delete(settings, "iface.iscsi_ifacename") // the new one has its own
	_, err = a.run(ctx, "iface", "-I", a.disk.Iface, "-o", "new")
	if err := passes(err, sessionExists); err != nil {
		return fmt.Errorf("iscsi: failed to create new iface: %w", err)
	}
	for _, name := range slices.Sorted(maps.Keys(settings)) {
		if settings[name] == unset {
			continue
		}
		_, err := a.run(ctx, "iface", "-I", a.disk.Iface, "-o", "update", "-n", name, "-v", settings[name])
		if err != nil {
			a.unclone(ctx)
			return fmt.Errorf("iscsi: failed to update iface records: %w", err)
		}
	}
	return nil
}

// unclone removes the disk's own interface after something failed; the next try makes it anew.
func (a *admin) unclone(ctx context.Context) {
	if a.disk.cloned() {
		_, _ = a.run(ctx, "iface", "-I", a.disk.Iface, "-o", "delete")
	}
}

// login makes a session with the target by way of the portal.
func (a *admin) login(ctx context.Context, portal string) error {
	// The record may be there already.
	_ = a.discovery(ctx, portal, "-o", "new")
	if err := a.discoveryAuth(ctx, portal); err != nil {
		return fmt.Errorf("iscsi: failed to update discoverydb to portal %s error: %w", portal, err)
	}
	if err := a.discovery(ctx, portal, "--discover"); err != nil {
		_ = a.discovery(ctx, portal, "-o", "delete")
		return fmt.Errorf("iscsi: failed to sendtargets to portal %s: %w", portal, err)
	}
	// Else iscsid would look for all disks. A version that doesn't know the setting does that.
	_ = a.node(ctx, portal, "-o", "update", "-n", "node.session.scan", "-v", "manual")
	if err := a.sessionAuth(ctx, portal); err != nil {
		return fmt.Errorf("iscsi: failed to update iscsi node to portal %s error: %w", portal, err)
	}
	if err := passes(a.node(ctx, portal, "--login"), sessionExists); err != nil {
		_ = a.node(ctx, portal, "-o", "delete")
		return fmt.Errorf("iscsi: failed to attach disk: Error: %w", err)
	}
	// At the next boot nobody but kubelot is to log in, and to wait for a target that may be gone.
	_ = a.node(ctx, portal, "-o", "update", "-n", "node.startup", "-v", "manual")
	return nil
}

func (a *admin) discoveryAuth(ctx context.Context, portal string) error {
	if !a.disk.discoveryCHAP {
		return nil
	}
	return a.auth(discoveryKeys, "discovery.sendtargets.auth.authmethod", func(name, value string) error {
		return a.discovery(ctx, portal, "-o", "update", "-n", name, "-v", value)
	})
}

func (a *admin) sessionAuth(ctx context.Context, portal string) error {
	if !a.disk.sessionCHAP {
		return nil
	}
	return a.auth(sessionKeys, "node.session.auth.authmethod", func(name, value string) error {
		return a.node(ctx, portal, "-o", "update", "-n", name, "-v", value)
	})
}

// auth sets the method and what the secret has for it.
func (a *admin) auth(keys []string, method string, set func(name, value string) error) error {
	if err := set(method, "CHAP"); err != nil {
		return err
	}
	for _, key := range keys {
		if value := a.secret[key]; value != "" {
			if err := set(key, value); err != nil {
				return err
			}
		}
	}
	return nil
}

// logout ends the session by way of the portal, and removes what the database has of it. Either may be gone.
func (a *admin) logout(ctx context.Context, portal string) error {
	for _, args := range [][]string{{"--logout"}, {"-o", "delete"}} {
		if err := passes(a.node(ctx, portal, args...), sessionNotFound, nothingFound); err != nil {
			return err
		}
	}
	return nil
}
