-- What game servers vouched for, so that no action is vouched for twice, and what they said of it until it becomes an event.
CREATE TABLE completed_actions (
    action_id VARCHAR(100) PRIMARY KEY,
    user_id UUID NOT NULL,
    max_score INTEGER NOT NULL,
    metadata JSONB NOT NULL DEFAULT '{}',
    completed_at TIMESTAMP WITH TIME ZONE NOT NULL,
    expires_at TIMESTAMP WITH TIME ZONE NOT NULL
);

CREATE INDEX idx_completed_actions_completed ON completed_actions (completed_at);

-- How many players there are. To count a million rows takes long enough to be felt; this changes only when an account is
-- made or deleted, not with a score.
CREATE TABLE board_size (
    only_row BOOLEAN PRIMARY KEY DEFAULT true CHECK (only_row),
    players BIGINT NOT NULL
);

INSERT INTO board_size (players) SELECT count(*) FROM scores;

CREATE FUNCTION count_new_players() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    UPDATE board_size SET players = players + (SELECT count(*) FROM changed) WHERE EXISTS (SELECT FROM changed);
    RETURN NULL;
END
$$;

CREATE FUNCTION count_lost_players() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    UPDATE board_size SET players = players - (SELECT count(*) FROM changed) WHERE EXISTS (SELECT FROM changed);
    RETURN NULL;
END
$$;

CREATE FUNCTION count_no_players() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    UPDATE board_size SET players = 0;
    RETURN NULL;
END
$$;

CREATE TRIGGER scores_inserted AFTER INSERT ON scores
    REFERENCING NEW TABLE AS changed FOR EACH STATEMENT EXECUTE FUNCTION count_new_players();
CREATE TRIGGER scores_deleted AFTER DELETE ON scores
    REFERENCING OLD TABLE AS changed FOR EACH STATEMENT EXECUTE FUNCTION count_lost_players();
CREATE TRIGGER scores_truncated AFTER TRUNCATE ON scores
    FOR EACH STATEMENT EXECUTE FUNCTION count_no_players();
