package vm

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"kubelot.dev/test/vm/machine"
)

// endToEnd are the end-to-end tests that run in the machine: those that say something about systemd, cgroup v2 and this
// kernel.
var endToEnd = []string{
	"TestResources", "TestResize", "TestResizeThatCannotBe", "TestUserNamespace",
	"TestUserNamespaceInMemory", "TestSecurityContext", "TestSharedNamespaces",
	"TestNodeVolumes", "TestFilledVolumes", "TestRecursiveReadOnly", "TestMountPropagation", "TestInitContainers",
	"TestSidecars", "TestGracePeriod", "TestStatsSummary",
}

// The end-to-end tests run in the machine, on its node, as they do on a bed.
func TestEndToEnd(t *testing.T) {
	notQuick(t)
	const dir = "/var/tmp/e2e"
	kubeconfig, err := os.ReadFile(node.Kubeconfig())
	if err != nil {
		t.Fatal(err)
	}
	in(t, fmt.Sprintf("mkdir -p %[1]s/pki %[1]s/bin && ln -sf %[2]s/bin/* /usr/bin/kubelot %[1]s/bin && "+
		"ln -sfn /run/kubelot %[1]s/run && ln -sf /etc/kubernetes/pki/ca.crt %[1]s/pki/ca.crt && echo %[3]s >%[1]s/address",
		dir, machine.Payload, node.Address))
	if err := node.Machine.Write(t.Context(), dir+"/admin.kubeconfig", 0o600, kubeconfig); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
	defer cancel()
	out, err := node.Machine.Run(ctx, fmt.Sprintf("cd %[1]s && KUBELOT_NODE=%[1]s PATH=/usr/lib/kubelot/bin:$PATH "+
		"%[2]s/bin/e2e.test -test.v -test.timeout 60m -test.parallel 3 -test.run '^(%[3]s)$'", dir, machine.Payload,
		strings.Join(endToEnd, "|")))
	for _, name := range endToEnd {
		if !strings.Contains(out, "--- PASS: "+name+" ") {
			t.Errorf("%s didn't pass in the machine", name)
		}
	}
	if err != nil || t.Failed() {
		t.Errorf("%v\n%s", err, out)
	}
}
