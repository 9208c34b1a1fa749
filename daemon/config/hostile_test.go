package config

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// aliasBomb is a small document that would be ten to the twelfth values when its aliases are followed.
func aliasBomb() string {
	var text strings.Builder
	text.WriteString("a0: &a0 [x,x,x,x,x,x,x,x,x,x]\n")
	for i := 1; i < 12; i++ {
		earlier := strings.TrimSuffix(strings.Repeat(fmt.Sprintf("*a%d,", i-1), 10), ",")
		fmt.Fprintf(&text, "a%d: &a%d [%s]\n", i, i, earlier)
	}
	return text.String()
}

// A small file must not keep a daemon busy.
func TestHostileDocumentsEndSoon(t *testing.T) {
	for name, text := range map[string]string{
		"aliases": aliasBomb(),
		"nesting": header + "kubeReserved: " + strings.Repeat("[", 100000),
		"objects": header + strings.Repeat("{a: ", 50000),
		"number":  header + "containerLogMaxSize: 1e999999999\n",
		"numbers": header + "kubeReserved: {cpu: 1e-999999999}\nevictionHard: {memory.available: 1e99999%}\n",
	} {
		begin := time.Now()
		if _, err := load(t, text, nil); err == nil && name != "number" {
			t.Errorf("%s: no error", name)
		}
		if took := time.Since(begin); took > 30*time.Second {
			t.Errorf("%s: took %v", name, took)
		}
	}
}

func FuzzDecodeDocument(f *testing.F) {
	f.Add([]byte(header + "maxPods: 1\nkubeReserved: {cpu: 1}\n"))
	f.Add([]byte(header + "resolvConf: null\nregisterWithTaints: [{}]\nlogging: {options: {json: {infoBufferSize: 1}}}\n"))
	f.Add(
		[]byte(
			`{"apiVersion":"kubelet.config.k8s.io/v1beta1","kind":"KubeletConfiguration","userNamespaces":{},"crashLoopBackOff":{}}`))
	f.Add([]byte("&a [*a]"))
	f.Fuzz(func(t *testing.T, data []byte) {
		fields, _, _, err := decodeDocument(data)
		if err != nil {
			return
		}
		anchorPaths(fields, "/etc")
		m := merge([]layer{{source: "fuzz", fields: fields}})
		k, err := m.decode()
		if err != nil {
			t.Fatalf("a valid document can't be merged: %v", err)
		}
		setDefaults(&k)
		if validate(&k, m.where) != nil {
			return
		}
		fieldWarnings(m, &k)
	})
}
