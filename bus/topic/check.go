package topic

import (
	"errors"
	"fmt"
	"strings"
	"unicode"

	corev1 "k8s.io/api/core/v1"
)

// The checks find values that are well formed but make no sense, on which no daemon may act. They accept what a later
// release may say. Of free texts they check only the length.

const (
	// maxName is the longest name of an object (DNS subdomain names, RFC 1123).
	maxName = 253
	// maxText is more than any daemon's word or the node's identifiers have.
	maxText = 64 << 10
)

func checkPod(key string, p Pod) error {
	if p.Pod == nil {
		return errors.New("it has no pod")
	}
	return Ref{Namespace: p.Pod.Namespace, Name: p.Pod.Name, UID: string(p.Pod.UID)}.check(key)
}

// checkObject bounds no text, because the status daemon must correct whatever another client has written.
func checkObject(key string, o APIPod) error { return o.check(key) }

func checkMirror(key string, m MirrorPod) error { return m.check(key) }

func checkStatus(key string, s PodStatus) error {
	return errors.Join(s.check(key), text("reason", s.Status.Reason), text("message", s.Status.Message))
}

// checkMerged bounds no text: what the API server has of the status is part of it.
func checkMerged(key string, m Merged) error { return m.check(key) }

func checkObservation(key string, o PodObservation) error { return o.check(key) }

func checkVolumes(key string, v PodVolumes) error { return v.check(key) }

// check reports whether the names can be those of the pod that the key names.
func (r Ref) check(key string) error {
	if r.UID != key && r.UID != "" {
		return fmt.Errorf("it is about the pod with the UID %.80q", r.UID)
	}
	return errors.Join(name("namespace", r.Namespace), name("name", r.Name))
}

func checkProbe(_ string, p Probe) error {
	if p.ContainerID == "" {
		return errors.New("it names no container")
	}
	return errors.Join(identifier("containerID", p.ContainerID), text("message", p.Message))
}

func checkRuntime(_ string, r Runtime) error {
	return errors.Join(
		identifier("name", r.Name), identifier("version", r.Version), text("message", r.Message),
		text("runtimeReady", r.RuntimeReady.Reason+r.RuntimeReady.Message),
		text("networkReady", r.NetworkReady.Reason+r.NetworkReady.Message),
	)
}

func checkMachine(_ string, m Machine) error {
	switch {
	case m.NumCores <= 0:
		return fmt.Errorf("it has %d cores", m.NumCores)
	case m.PIDLimit < 0:
		return fmt.Errorf("it has a limit of %d processes", m.PIDLimit)
	}
	return errors.Join(
		identifier("machineID", m.MachineID), identifier("systemUUID", m.SystemUUID), identifier("bootID", m.BootID),
		identifier("kernelVersion", m.KernelVersion), identifier("osImage", m.OSImage),
	)
}

func checkNode(_ string, n corev1.Node) error {
	if n.Name == "" && len(n.Status.Capacity) == 0 && len(n.Status.Allocatable) == 0 {
		return errors.New("it is empty")
	}
	for _, list := range []corev1.ResourceList{n.Status.Capacity, n.Status.Allocatable} {
		for resource, quantity := range list {
			if quantity.Sign() < 0 {
				return fmt.Errorf("it has %s of %.80q", quantity.String(), resource)
			}
		}
	}
	return name("name", n.Name)
}

func checkPressure(_ string, p Pressure) error { return text("message", p.Message) }

// checkShutdown accepts no group that isn't there: gc goes on with what an earlier process has stated.
func checkShutdown(_ string, s Shutdown) error {
	if s.Group < 0 || s.Group > len(s.Groups) {
		return fmt.Errorf("group %d of %d ends", s.Group, len(s.Groups))
	}
	for _, g := range s.Groups {
		if g.GracePeriodSeconds < 0 {
			return fmt.Errorf("the group of priority %d has %d s", g.Priority, g.GracePeriodSeconds)
		}
	}
	return errors.Join(identifier("bootID", s.BootID), text("message", s.Message))
}

func checkHealth(_ string, h DaemonHealth) error {
	if h.State == "" {
		return errors.New("it has no state")
	}
	return errors.Join(identifier("state", string(h.State)), identifier("version", h.Version), text("message", h.Message))
}

func checkEvent(_ string, e Event) error {
	if e.Kind == "" || e.Name == "" || e.Reason == "" {
		return errors.New("it lacks a kind, a name or a reason")
	}
	return errors.Join(name("namespace", e.Namespace), name("name", e.Name), identifier("reason", e.Reason),
		text("message", e.Message))
}

func checkDecision(_ string, d Decision) error {
	if d.Action == "" || d.Object == "" {
		return errors.New("it lacks an action or an object")
	}
	return errors.Join(identifier("action", string(d.Action)), text("object", d.Object), text("reason", d.Reason),
		text("error", d.Error))
}

// name returns an error if the value can't be the name of an object. Paths and requests are made of names.
func name(field, value string) error {
	if len(value) > maxName {
		return fmt.Errorf("its %s has %d characters", field, len(value))
	}
	if value == "." || value == ".." || strings.ContainsRune(value, '/') {
		return fmt.Errorf("its %s is %q", field, value)
	}
	return identifier(field, value)
}

// identifier returns an error if the value isn't one line of printable text.
func identifier(field, value string) error {
	if i := strings.IndexFunc(value, func(r rune) bool { return !unicode.IsPrint(r) }); i >= 0 {
		return fmt.Errorf("its %s has a control character at byte %d", field, i)
	}
	return text(field, value)
}

// text returns an error if a free text is too long. It may hold any byte, because programs print some of these texts.
func text(field, value string) error {
	if len(value) > maxText {
		return fmt.Errorf("its %s has %d bytes", field, len(value))
	}
	return nil
}
