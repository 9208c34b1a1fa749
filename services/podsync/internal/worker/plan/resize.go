package plan

import (
	"fmt"

	"kubelot.dev/bus/topic"
	"kubelot.dev/daemon/podspec"
	"kubelot.dev/services/podsync/internal/admission/allocation"
)

// resize plans an in-place resize: containers that must be restarted for it are stopped, then the pod and those that
// run on get their new size, and then what must be started is. A resize that failed, or has to wait, holds up no start.
func (p *planner) resize() {
	if p.facts.Resize == nil {
		return
	}
	stopping := false
	for c := range podspec.InitAndMain(&p.Pod.Spec) {
		cur := p.current(c.Name)
		if cur == nil || cur.State != topic.ContainerRunning {
			continue
		}
		if has, differs := p.facts.Resize.Before[cur.ID]; differs && allocation.Restarts(c, &has) {
			stopping = true
			p.do(Action{
				Kind: StopContainer, Container: c.Name, ID: cur.ID, Grace: PodGrace(p.Pod), Reason: ForResize,
				Message: fmt.Sprintf("Container %s resize requires restart", c.Name),
			})
		}
	}
	do := Action{Kind: ResizePod}
	_, failed := p.facts.Failures[do.Key()]
	p.resizing = !failed && !p.facts.ResizeWaits
	if !stopping {
		p.do(do)
	}
}
