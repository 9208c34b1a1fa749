package crash

import (
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"testing"
	"time"

	storagev1 "k8s.io/api/storage/v1"
)

// CSI_ROUNDS says another number of rounds than these. They have each call met several times, by different deaths.
// After allCSIRounds each call was met by the death of each victim, and after 100 by most of them twice, of another
// kind of volume.
const (
	csiRounds    = 9
	allCSIRounds = 56
)

// csiVictims are who is killed. The driver dies before it has done what it was asked for, or when it has done it and
// has not said so.
var csiVictims = []string{
	"volume", "driver before", "bus", "podsync", "API server", "stats", "lease", "driver after", "resource", "status",
	"pleg", "api", "gc", "probe",
}

// csiPart is a part of a volume's way, with the calls of the driver in it. A round has one kill in each part. First is
// the victim of the part's first round: in a round each part has another. The first rounds kill no volume daemon, for
// 10 s after a call the judge of the calls takes it that a caller who has died doesn't know the answer.
type csiPart struct {
	first   int
	methods []string
}

var (
	csiRegisters = csiPart{6, []string{"GetInfo", "NotifyRegistrationStatus", "NodeGetInfo", "NodeGetCapabilities"}}
	csiComes     = csiPart{4, []string{"NodeStageVolume", "NodePublishVolume", "NodeExpandVolume"}}
	csiIsLooked  = csiPart{5, []string{"NodeGetVolumeStats"}}
	csiIsAgain   = csiPart{2, []string{"NodePublishVolume"}}
	csiGoes      = csiPart{3, []string{"NodeUnpublishVolume", "NodeUnstageVolume"}}
	csiAttaches  = csiPart{4, []string{"ControllerPublishVolume"}}
	csiDetaches  = csiPart{1, []string{"ControllerUnpublishVolume"}}
)

// kill is the kill of a round: the rounds have the methods in turn, and each method all victims. Five steps through the
// list come to every victim.
func (p csiPart) kill(round int) csiKill {
	turn, i := round/len(p.methods), round%len(p.methods)
	return csiKill{victim: csiVictims[(p.first+i+5*turn)%len(csiVictims)], method: p.methods[i]}
}

// csiKill is who is killed during which call.
type csiKill struct {
	victim, method string
	// again is true for a volume that is published and is published again (requiresRepublish).
	again bool
}

func (k csiKill) String() string {
	if k.again {
		return k.victim + " during " + k.method + " again"
	}
	return k.victim + " during " + k.method
}

// csiWay is a round: who is killed in each part, and whether the pod gets a device.
type csiWay struct {
	registers, comes, has, goes csiKill
	block                       bool
}

func (w csiWay) kills() []csiKill { return []csiKill{w.registers, w.comes, w.has, w.goes} }

// csiWayOf is the way of a round. Of three rounds each one has a volume of another kind: a filesystem, a device, and a
// filesystem that is published again and again.
func csiWayOf(round int) csiWay {
	w := csiWay{registers: csiRegisters.kill(round), comes: csiComes.kill(round), goes: csiGoes.kill(round)}
	switch turn := round / 3; (round + turn) % 3 {
	case 0:
		w.has = csiIsLooked.kill(turn)
	case 1:
		w.block, w.has = true, csiIsLooked.kill(turn+len(csiVictims)/2)
	default:
		w.has = csiIsAgain.kill(turn)
		w.has.again = true
	}
	return w
}

// csiRoundsOr is how many rounds a test has, unless CSI_ROUNDS says something else.
func csiRoundsOr(t *testing.T, rounds int) int {
	t.Helper()
	text := os.Getenv("CSI_ROUNDS")
	if text == "" {
		return rounds
	}
	rounds, err := strconv.Atoi(text)
	if err != nil {
		t.Fatal(err)
	}
	return rounds
}

// In each round a volume comes and goes, and four times somebody is killed: during a call by which its driver
// registers, while the volume is set up, while a pod has it, and while it is taken away. It is mounted once and has its
// data, and nothing of it is left when its pod has gone. Another volume stays all the time with its pod.
func TestCSIKilledAtEveryCall(t *testing.T) {
	rounds := csiRoundsOr(t, csiRounds)
	ns := bed.Namespace(t)
	yes, no := true, false
	plain := bed.CSIDriver(t, "killed.csi.test", storagev1.CSIDriverSpec{AttachRequired: &no}, "--no-attach")
	again := bed.CSIDriver(t, "again.csi.test", storagev1.CSIDriverSpec{
		AttachRequired: &no, RequiresRepublish: &yes,
	}, "--no-attach")
	plain.Start()
	again.Start()
	_, noXFS := exec.LookPath("mkfs.xfs")
	kept := &csiRound{t: t, ns: ns, driver: plain, name: "kept"}
	kept.comes(csiKill{})
	met := map[csiKill]bool{}
	for i := range rounds {
		w, began := csiWayOf(i), time.Now()
		r := &csiRound{t: t, ns: ns, driver: plain, name: fmt.Sprintf("r%d", i), block: w.block}
		if w.has.again {
			r.driver = again
		}
		if w.comes.method == "NodeExpandVolume" && !w.block && noXFS != nil {
			w.comes = csiKill{} // not every root may make an ext4 larger that is mounted
		}
		t.Logf("round %d: %s, of a device: %t", i, w.kills(), r.block)
		r.registers(w.registers)
		r.comes(w.comes)
		r.has(w.has)
		r.goes(w.goes)
		kept.stays()
		if t.Failed() {
			return
		}
		for _, k := range w.kills() {
			met[k] = true
		}
		t.Logf("round %d took %s", i, time.Since(began).Round(100*time.Millisecond))
	}
	kept.goes(csiKill{})
	all := 0
	for _, part := range []csiPart{csiRegisters, csiComes, csiIsLooked, csiIsAgain, csiGoes} {
		all += len(part.methods) * len(csiVictims)
	}
	t.Logf("%d of %d combinations of a victim and a call", len(met), all)
	if rounds >= allCSIRounds && len(met) < all {
		t.Error("these are not all")
	}
}
