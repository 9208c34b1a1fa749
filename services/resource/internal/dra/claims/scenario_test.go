package claims

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"
	"k8s.io/apimachinery/pkg/types"
)

// TestScenarios runs testdata: each file is the life of a book. "go test -rewrite" writes the decisions again; read the
// difference before you keep it. Each command but node shows the book after it. All claims are in the namespace ns.
//
//	node      lines "registered DRIVER..." and "leaving POD..."
//	prepare   pod=P [former=P]; lines "CLAIM UID DRIVER...", which is what the API server says
//	release   pod=P
//	call      begins the calls of the last step
//	answer    driver=D [unprepare]; lines "UID DEVICE[=CDI]...", "UID error TEXT", or one line "failed TEXT"
//	restart   [allocated=P]; what an earlier process leaves, with the pod published as allocated
func TestScenarios(t *testing.T) {
	datadriven.Walk(t, "testdata", func(t *testing.T, path string) {
		s := &scenario{book: Book{}, called: map[string][]*Claim{}}
		datadriven.RunTest(t, path, s.run)
	})
}

type scenario struct {
	book                Book
	registered, leaving []string
	step                Step
	// called are the claims that drivers are being called about.
	called map[string][]*Claim
}

func (s *scenario) run(t *testing.T, d *datadriven.TestData) string {
	var out strings.Builder
	switch d.Cmd {
	case "node":
		s.node(d)
		return ""
	case "prepare":
		var err error
		s.step, err = s.book.Prepare(podOf(t, d), wanted(t, d), s.view())
		s.show(&out, err)
	case "release":
		s.step = s.book.Release(podOf(t, d), s.view())
		s.show(&out, nil)
	case "call":
		s.step.Calls.Begin()
		for driver, list := range s.step.Calls {
			s.called[driver] = list
		}
	case "answer":
		if err := s.answer(t, d); err != nil {
			fmt.Fprintln(&out, "error:", err)
		}
	case "restart":
		s.restart(d)
	default:
		t.Fatalf("unknown command %q", d.Cmd)
	}
	for _, c := range s.book.All() {
		fmt.Fprintln(&out, show(c))
	}
	return out.String()
}

func (s *scenario) node(d *datadriven.TestData) {
	for line := range strings.Lines(d.Input) {
		words := strings.Fields(line)
		switch words[0] {
		case "registered":
			s.registered = words[1:]
		case "leaving":
			s.leaving = words[1:]
		}
	}
}

func podOf(t *testing.T, d *datadriven.TestData) types.UID {
	var name string
	d.ScanArgs(t, "pod", &name)
	return types.UID(name)
}

func wanted(t *testing.T, d *datadriven.TestData) []Wanted {
	var all []Wanted
	var former []types.UID
	if arg, ok := d.Arg("former"); ok {
		former = append(former, types.UID(arg.SingleVal(t)))
	}
	for line := range strings.Lines(d.Input) {
		words := strings.Fields(line)
		all = append(all, Wanted{
			NamespacedName: types.NamespacedName{Namespace: "ns", Name: words[0]}, UID: types.UID(words[1]),
			Drivers: words[2:], Former: former,
		})
	}
	return all
}

func (s *scenario) view() View {
	return View{
		Registered: func(driver string) bool { return slices.Contains(s.registered, driver) },
		Leaving:    func(pod types.UID) bool { return slices.Contains(s.leaving, string(pod)) },
	}
}

func (s *scenario) answer(t *testing.T, d *datadriven.TestData) error {
	var driver string
	d.ScanArgs(t, "driver", &driver)
	call := CallPrepare
	if d.HasArg("unprepare") {
		call = CallUnprepare
	}
	answers := Answers{}
	for line := range strings.Lines(d.Input) {
		words := strings.Fields(line)
		if words[0] == "failed" {
			return Answered(call, driver, s.called[driver], nil, errors.New(strings.Join(words[1:], " ")))
		}
		var a Answer
		if len(words) > 1 && words[1] == "error" {
			a.Error = strings.Join(words[2:], " ")
			words = nil
		}
		for _, word := range words[min(1, len(words)):] {
			name, cdi, _ := strings.Cut(word, "=")
			a.Devices = append(a.Devices, Device{Pool: "p", Name: name, CDI: []string{cdi}})
		}
		answers[types.UID(strings.Fields(line)[0])] = a
	}
	return Answered(call, driver, s.called[driver], answers, nil)
}

func (s *scenario) restart(d *datadriven.TestData) {
	for _, c := range s.book {
		for _, driver := range c.Drivers {
			driver.Standing, driver.Calling = Unsure, false
		}
	}
	for _, arg := range d.CmdArgs {
		if arg.Key == "allocated" {
			s.book.TrustAllocated(map[types.UID]bool{types.UID(arg.Vals[0]): true})
		}
	}
}

func (s *scenario) show(out *strings.Builder, err error) {
	if err != nil {
		fmt.Fprintln(out, "error:", err)
	}
	if s.step.Changed {
		fmt.Fprintln(out, "save")
	}
	for _, driver := range sortedKeys(s.step.Calls) {
		fmt.Fprintf(out, "call %s:", driver)
		for _, c := range s.step.Calls[driver] {
			fmt.Fprintf(out, " %s", c.Name)
		}
		fmt.Fprintln(out)
	}
	for _, w := range s.step.Waits {
		fmt.Fprintln(out, "wait:", w)
	}
	for _, l := range s.step.Lacks {
		fmt.Fprintln(out, "lack:", l)
	}
	if s.step.Done {
		fmt.Fprintln(out, "done")
	}
}

func show(c *Claim) string {
	var b strings.Builder
	fmt.Fprintf(&b, "  %s (%s) of %s:", c.Name, c.UID, strings.Join(sortedKeys(c.Pods), " "))
	for _, name := range c.DriverNames() {
		d := c.Drivers[name]
		fmt.Fprintf(&b, " %s %s", name, d.Standing)
		if d.Calling {
			b.WriteString(" calling")
		}
		for _, device := range d.Devices {
			fmt.Fprintf(&b, " [%s %s]", device.Name, strings.Join(device.CDI, " "))
		}
		b.WriteString(";")
	}
	return strings.TrimSuffix(b.String(), ";")
}

func sortedKeys[K ~string, V any](m map[K]V) []string {
	var keys []string
	for key := range m {
		keys = append(keys, string(key))
	}
	slices.Sort(keys)
	return keys
}
