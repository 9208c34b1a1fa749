package crew

import (
	"strings"
	"testing"
)

func TestGroup(t *testing.T) {
	for list, want := range map[string]string{
		"podsync,bus":           "bus podsync", // the bus starts first
		"kubelot-gc,pleg":       "pleg gc",
		"bus,podsync,bus":       "error: daemon bus is named twice",
		"bus,api":               `error: there is no daemon "api"`, // it isn't in this executable
		"":                      `error: there is no daemon ""`,
		"bus,kubelot-bus":       "error: daemon bus is named twice",
		"--config=kubelet.yaml": `error: there is no daemon "--config=kubelet.yaml"`,
	} {
		group, err := groupOf(Daemons(), list)
		got := strings.Join(names(group), " ")
		if err != nil {
			got = "error: " + err.Error()
		}
		if !strings.HasPrefix(got, want) {
			t.Errorf("%q: %s, want %s", list, got, want)
		}
	}
}

func TestChooseAGroup(t *testing.T) {
	program, args, err := Choose([]string{"/usr/bin/kubelot-all", "run", "bus,podsync", "--v=2"})
	if err != nil || program != RunGroup || strings.Join(args, " ") != "/usr/bin/kubelot-all run bus,podsync --v=2" {
		t.Errorf("%s %q %v", program, args, err)
	}
}
