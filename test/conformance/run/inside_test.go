package run

import (
	"strings"
	"testing"
	"time"

	"kubelot.dev/test/conformance"
	"kubelot.dev/test/testbed/node"
)

// The shell of the machine leaves the focus as it is.
func TestScriptInside(t *testing.T) {
	o := Options{
		Agent: node.Kubelet, Repeat: 2, Timeout: time.Hour,
		Scope: conformance.Scope{Suite: conformance.NUMA(), Focus: "CPU.*(isn't|$)"},
	}
	script := o.script()
	for _, want := range []string{
		"/payload/apart.sh /payload/bin/conformance '--suite=numa' '--agent=kubelet' '--out=/var/lib/conformance' ",
		` '--focus=CPU.*(isn'\''t|$)' '--repeat=2' '--timeout=1h0m0s' >/var/lib/conformance/kubelet/conformance.log `,
		" TESTBED_PROGRAMS=/payload/bin\n",
	} {
		if !strings.Contains(script, want) {
			t.Errorf("no %q in %q", want, script)
		}
	}
	if o.Scope.Quick = true; !strings.Contains(o.script(), " '--quick' >") {
		t.Errorf("nothing says that it is quick: %q", o.script())
	}
}

// The suite looks for what the script says of the machine's mounts.
func TestApartTellsOfTheMounts(t *testing.T) {
	if !strings.Contains(string(apart), "export "+machinesMounts+"\n") {
		t.Errorf("apart.sh doesn't export %s", machinesMounts)
	}
}
