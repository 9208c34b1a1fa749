package vm

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"kubelot.dev/test/vm/guest"
)

// The node's API has the journal of a unit, by the journalctl of the machine.
func TestLogQuery(t *testing.T) {
	notQuick(t)
	configure(t, "enableSystemLogHandler: true\nenableSystemLogQuery: true\n")
	in(t, "systemd-run --quiet --wait --unit=talker --description=talker sh -c 'echo the first line; echo the last line'")
	ns := bed.Namespace(t)
	query := func(arguments string) string {
		t.Helper()
		var out string
		eventually(t, "the journal from the node's API", func(context.Context) (err error) {
			out, err = ns.TryKubectl("get", "--raw", "/api/v1/nodes/"+guest.Name+"/proxy/logs/?query="+arguments)
			if err == nil && !strings.Contains(out, " line") {
				// journald writes in its own time.
				err = fmt.Errorf("it has %q", out)
			}
			return err
		})
		return out
	}
	if got := query("talker"); !strings.Contains(got, "the first line") || !strings.Contains(got, "the last line") {
		t.Errorf("the unit's journal is\n%s", got)
	}
	if got := query("talker&tailLines=1&pattern=the"); strings.Contains(got, "the first line") ||
		!strings.Contains(got, "the last line") {
		t.Errorf("the last line of the unit's journal is\n%s", got)
	}
}
