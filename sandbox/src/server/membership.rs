//! Who is in which consumer group and which partitions each member reads: pure state, in memory only.
//!
//! What always holds: each partition of a group with members belongs to exactly one member, no member has over
//! one partition more than another, and whenever that assignment changes the group's generation grows. Members are
//! connections; one that closes or logs out leaves its groups. The new assignment holds at once: a member that still polls a
//! partition it lost is told to ask for its assignment again.

use std::collections::{BTreeMap, HashMap};

/// A consumer group, by the ids of its stream, topic and itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct GroupKey {
    pub(crate) stream: u32,
    pub(crate) topic: u32,
    pub(crate) group: u32,
}

/// All consumer groups that have, or had, members.
#[derive(Debug, Default)]
pub(crate) struct Membership {
    groups: HashMap<GroupKey, Members>,
}

#[derive(Debug, Default)]
struct Members {
    generation: u64,
    /// In the order in which they joined.
    members: Vec<u32>,
    /// The topic's partitions at the last assignment.
    partitions: Vec<u32>,
    assigned: BTreeMap<u32, Vec<u32>>,
}

impl Members {
    fn assign(&mut self, partitions: &[u32]) {
        self.generation += 1;
        self.partitions = partitions.to_vec();
        self.assigned = self
            .members
            .iter()
            .map(|member| (*member, Vec::new()))
            .collect();
        for (partition, member) in partitions.iter().zip(self.members.iter().cycle()) {
            self.assigned.entry(*member).or_default().push(*partition);
        }
    }

    /// Follows the topic: partitions may have been added or removed since the last assignment.
    fn refresh(&mut self, partitions: &[u32]) {
        if self.partitions != partitions {
            self.assign(partitions);
        }
    }
}

impl Membership {
    /// Adds a member to a group with these partitions; nothing happens if it is in it already.
    pub(crate) fn join(&mut self, key: GroupKey, member: u32, partitions: &[u32]) {
        let group = self.groups.entry(key).or_default();
        if !group.members.contains(&member) {
            group.members.push(member);
            group.assign(partitions);
        }
    }

    /// Removes a member from a group. Says whether it was in it.
    pub(crate) fn leave(&mut self, key: GroupKey, member: u32) -> bool {
        let Some(group) = self.groups.get_mut(&key) else {
            return false;
        };
        let before = group.members.len();
        group.members.retain(|other| *other != member);
        let left = group.members.len() < before;
        if left {
            let partitions = std::mem::take(&mut group.partitions);
            group.assign(&partitions);
        }
        left
    }

    /// Removes a member from all groups.
    pub(crate) fn drop_member(&mut self, member: u32) {
        for key in self.groups_of(member) {
            self.leave(key, member);
        }
    }

    /// The groups which the member is in, in order.
    pub(crate) fn groups_of(&self, member: u32) -> Vec<GroupKey> {
        let mut keys: Vec<_> = self
            .groups
            .iter()
            .filter(|(_, group)| group.members.contains(&member))
            .map(|(key, _)| *key)
            .collect();
        keys.sort_unstable();
        keys
    }

    /// The generation and the member's partitions, or `None` if it is not in the group.
    pub(crate) fn assignment(
        &mut self,
        key: GroupKey,
        member: u32,
        partitions: &[u32],
    ) -> Option<(u64, Vec<u32>)> {
        let group = self.groups.get_mut(&key)?;
        group.refresh(partitions);
        let assigned = group.assigned.get(&member)?;
        Some((group.generation, assigned.clone()))
    }

    /// Whether the member reads this partition now.
    pub(crate) fn owns(
        &mut self,
        key: GroupKey,
        member: u32,
        partition: u32,
        partitions: &[u32],
    ) -> bool {
        self.groups.get_mut(&key).is_some_and(|group| {
            group.refresh(partitions);
            group
                .assigned
                .get(&member)
                .is_some_and(|assigned| assigned.contains(&partition))
        })
    }

    /// The members with their partitions, in the order in which they joined.
    pub(crate) fn members(&mut self, key: GroupKey, partitions: &[u32]) -> Vec<(u32, Vec<u32>)> {
        let Some(group) = self.groups.get_mut(&key) else {
            return Vec::new();
        };
        group.refresh(partitions);
        let assigned = |member: &u32| group.assigned.get(member).cloned().unwrap_or_default();
        group
            .members
            .iter()
            .map(|member| (*member, assigned(member)))
            .collect()
    }

    /// Forgets the groups for which `exists` says no.
    pub(crate) fn retain(&mut self, exists: impl Fn(&GroupKey) -> bool) {
        self.groups.retain(|key, _| exists(key));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: GroupKey = GroupKey {
        stream: 0,
        topic: 0,
        group: 0,
    };

    fn partitions_of(membership: &mut Membership, member: u32, partitions: &[u32]) -> Vec<u32> {
        membership
            .assignment(KEY, member, partitions)
            .map(|(_, assigned)| assigned)
            .unwrap_or_default()
    }

    #[test]
    fn partitions_are_spread_evenly_and_each_has_one_owner() {
        for count in 0..7_u32 {
            for members in 1..5_u32 {
                let partitions: Vec<u32> = (0..count).collect();
                let mut membership = Membership::default();
                for member in 0..members {
                    membership.join(KEY, member, &partitions);
                }
                let assigned: Vec<_> = (0..members)
                    .map(|member| partitions_of(&mut membership, member, &partitions))
                    .collect();
                let mut all: Vec<u32> = assigned.iter().flatten().copied().collect();
                all.sort_unstable();
                assert_eq!(all, partitions);
                let sizes: Vec<_> = assigned.iter().map(Vec::len).collect();
                assert!(
                    sizes.iter().max().unwrap() - sizes.iter().min().unwrap() <= 1,
                    "{sizes:?}"
                );
            }
        }
    }

    #[test]
    fn a_leaver_hands_its_partitions_to_the_others_under_a_new_generation() {
        let mut membership = Membership::default();
        membership.join(KEY, 1, &[0, 1]);
        membership.join(KEY, 2, &[0, 1]);
        let before = membership.assignment(KEY, 2, &[0, 1]).unwrap();
        assert!(membership.leave(KEY, 1));
        let after = membership.assignment(KEY, 2, &[0, 1]).unwrap();
        assert_eq!(after.1, [0, 1]);
        assert!(after.0 > before.0);
        assert_eq!(membership.assignment(KEY, 1, &[0, 1]), None);
        assert!(!membership.leave(KEY, 1));
    }

    #[test]
    fn a_second_join_changes_nothing() {
        let mut membership = Membership::default();
        membership.join(KEY, 1, &[0]);
        let before = membership.assignment(KEY, 1, &[0]);
        membership.join(KEY, 1, &[0]);
        assert_eq!(membership.assignment(KEY, 1, &[0]), before);
    }

    #[test]
    fn new_partitions_are_assigned_when_next_asked_for() {
        let mut membership = Membership::default();
        membership.join(KEY, 1, &[0]);
        let (generation, _) = membership.assignment(KEY, 1, &[0]).unwrap();
        assert!(membership.owns(KEY, 1, 1, &[0, 1]));
        assert_eq!(
            membership.assignment(KEY, 1, &[0, 1]),
            Some((generation + 1, vec![0, 1]))
        );
    }

    #[test]
    fn a_member_that_is_gone_is_in_no_group() {
        let other = GroupKey { group: 1, ..KEY };
        let mut membership = Membership::default();
        membership.join(KEY, 1, &[0]);
        membership.join(other, 1, &[0]);
        membership.join(other, 2, &[0]);
        assert_eq!(membership.groups_of(1), [KEY, other]);
        membership.drop_member(1);
        assert!(membership.groups_of(1).is_empty());
        assert!(membership.owns(other, 2, 0, &[0]));
        assert_eq!(membership.members(KEY, &[0]), []);
    }
}
