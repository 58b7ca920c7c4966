-- A score change in one round trip and one transaction: the token is used up, the score locked and raised, the event written.
--
-- Locks are always taken in this order: token, score, user (by the event's reference). Two uses of one token at the same time
-- meet at its insertion: the second waits for the first, and then finds the token used up. A refusal is raised, not
-- returned, so that nothing of it stays, not even the used-up token.

CREATE FUNCTION apply_score_change(
    the_token_hash TEXT,
    the_action_id TEXT,
    the_user_id UUID,
    the_delta INTEGER,
    the_token_expires_at TIMESTAMP WITH TIME ZONE,
    the_moment TIMESTAMP WITH TIME ZONE,
    the_client_info JSONB
) RETURNS TABLE (
    user_id UUID,
    username VARCHAR,
    score_delta INTEGER,
    score_before BIGINT,
    score_after BIGINT,
    applied_at TIMESTAMP WITH TIME ZONE,
    is_replay BOOLEAN,
    response TEXT
) LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    before_it BIGINT;
    name_of_user VARCHAR;
BEGIN
    INSERT INTO consumed_tokens (token_hash, user_id, consumed_at, expires_at)
    VALUES (the_token_hash, the_user_id, the_moment, the_token_expires_at)
    ON CONFLICT DO NOTHING;

    IF NOT FOUND THEN
        RETURN QUERY
            SELECT c.user_id, coalesce(u.username, ''), e.score_delta, e.score_before, e.score_after, e.created_at, true, c.response
            FROM consumed_tokens c
            JOIN score_events e ON e.action_token_hash = c.token_hash
            LEFT JOIN users u ON u.id = c.user_id
            WHERE c.token_hash = the_token_hash;
        RETURN;
    END IF;

    SELECT s.total_score INTO before_it FROM scores s WHERE s.user_id = the_user_id FOR UPDATE;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'no such player' USING ERRCODE = 'TS404';
    END IF;
    IF the_delta > 9007199254740991 - before_it THEN
        RAISE EXCEPTION 'the score would be too great' USING ERRCODE = 'TS409';
    END IF;

    UPDATE scores s SET
        total_score = before_it + the_delta,
        score_first_reached_at = CASE WHEN the_delta > 0 THEN the_moment ELSE s.score_first_reached_at END,
        updated_at = the_moment
    WHERE s.user_id = the_user_id;

    INSERT INTO score_events
        (user_id, action_token_hash, action_id, score_delta, score_before, score_after, metadata, client_info, created_at)
    VALUES (
        the_user_id, the_token_hash, the_action_id, the_delta, before_it, before_it + the_delta,
        coalesce((SELECT a.metadata FROM completed_actions a WHERE a.action_id = the_action_id), '{}'),
        the_client_info, the_moment
    );

    SELECT u.username INTO name_of_user FROM users u WHERE u.id = the_user_id;
    RETURN QUERY SELECT the_user_id, name_of_user, the_delta, before_it, before_it + the_delta, the_moment, false, NULL::text;
END
$$;
