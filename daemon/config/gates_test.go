package config

import (
	"strings"
	"testing"

	kubeletv1beta1 "k8s.io/kubelet/config/v1beta1"
)

func TestEnabled(t *testing.T) {
	for name, c := range map[string]struct {
		set  map[string]bool
		gate Gate
		want bool
	}{
		"alpha, nothing set":            {nil, GatePodsAPI, false},
		"alpha, others":                 {map[string]bool{"MemoryQoS": true}, GatePodsAPI, false},
		"alpha, on":                     {map[string]bool{"PodsAPI": true}, GatePodsAPI, true},
		"alpha, off":                    {map[string]bool{"PodsAPI": false}, GatePodsAPI, false},
		"all alpha gates":               {map[string]bool{"AllAlpha": true}, GatePodsAPI, true},
		"all alpha gates but it":        {map[string]bool{"AllAlpha": true, "PodsAPI": false}, GatePodsAPI, false},
		"it but no alpha gates":         {map[string]bool{"AllAlpha": false, "PodsAPI": true}, GatePodsAPI, true},
		"all beta gates don't have it":  {map[string]bool{"AllBeta": true}, GateMemoryQoS, false},
		"beta, nothing set":             {nil, GateCPUManagerBetaOptions, true},
		"no beta gates":                 {map[string]bool{"AllBeta": false}, GateCPUManagerBetaOptions, false},
		"beta, no alpha gates":          {map[string]bool{"AllAlpha": false}, GateCPUManagerBetaOptions, true},
		"deprecated, nothing set":       {nil, GateNoQuotaWithExclusiveCPUs, true},
		"deprecated, off":               {map[string]bool{string(GateListActivePods): false}, GateListActivePods, false},
		"deprecated, neither all gate":  {map[string]bool{"AllAlpha": false, "AllBeta": false}, GateListActivePods, true},
		"deprecated, an unnamed gate":   {map[string]bool{"": false}, GateListActivePods, true},
		"QOSReserved by all its others": {map[string]bool{"AllAlpha": true}, GateQOSReserved, true},
	} {
		if got := Enabled(&kubeletv1beta1.KubeletConfiguration{FeatureGates: c.set}, c.gate); got != c.want {
			t.Errorf("%s: %s is on: %t, want %t", name, c.gate, got, c.want)
		}
	}
}

// A gate that is a switch is no reason for a warning, and the warning of another names those that are.
func TestSwitchesDoNotWarn(t *testing.T) {
	for gate := range gates {
		if c := mustLoad(t, header+"featureGates: {"+string(gate)+": true}\n", nil); len(c.Warnings) > 0 {
			t.Errorf("%s: %q", gate, c.Warnings)
		}
	}
	c := mustLoad(t, header+"featureGates: {MemoryQoS: true, NoSwitch: true}\n", nil)
	if len(c.Warnings) != 1 {
		t.Fatalf("warnings %q, want one", c.Warnings)
	}
	for gate := range gates {
		if !strings.HasPrefix(string(gate), "CPUManager") && !strings.Contains(c.Warnings[0], string(gate)) {
			t.Errorf("%q lacks %s", c.Warnings[0], gate)
		}
	}
}

func TestMemoryQoSNeedsItsGate(t *testing.T) {
	const tiered = "memoryReservationPolicy: TieredReservation\n"
	for gates, fails := range map[string]bool{
		"":                                  true,
		"featureGates: {MemoryQoS: true}\n": false,
		"featureGates: {AllAlpha: true}\n":  false,
		"featureGates: {AllAlpha: true, MemoryQoS: false}\n": true,
	} {
		_, err := load(t, header+tiered+gates, nil)
		if (err != nil) != fails {
			t.Errorf("%q: %v", gates, err)
		}
	}
}

func TestQOSReserved(t *testing.T) {
	for text, want := range map[string]struct {
		percent int64 // -1 is none
		problem string
	}{
		"":                                   {-1, ""},
		"qosReserved: {memory: 50%}\n":       {-1, ""},
		"qosReserved: {memory: 0%}\n" + on:   {0, ""},
		"qosReserved: {memory: 100%}\n" + on: {100, ""},
		on:                                   {-1, ""},
		"qosReserved: {memory: 101%}\n":      {-1, "qosReserved.memory"},
		"qosReserved: {memory: -1%}\n":       {-1, "qosReserved.memory"},
		"qosReserved: {memory: \"50\"}\n":    {-1, "qosReserved.memory"},
		"qosReserved: {memory: \"%\"}\n":     {-1, "qosReserved.memory"},
		"qosReserved: {cpu: 50%}\n":          {-1, "qosReserved.cpu"},
	} {
		c, err := load(t, header+text, nil)
		if want.problem != "" {
			if err == nil || !strings.Contains(err.Error(), want.problem) {
				t.Errorf("%q: error %v, want one of %s", text, err, want.problem)
			}
			continue
		}
		if err != nil {
			t.Errorf("%q: %v", text, err)
			continue
		}
		percent := int64(-1)
		if p := QOSReserved(&c.Kubelet); p != nil {
			percent = *p
		}
		if percent != want.percent {
			t.Errorf("%q: %d %%, want %d", text, percent, want.percent)
		}
	}
}

const on = "featureGates: {QOSReserved: true}\n"
